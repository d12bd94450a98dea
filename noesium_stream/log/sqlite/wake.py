"""Wake-up of readers of a SQLite log in other processes.

After every commit, when it is visible, the writer opens and closes the `-wal` file (3 µs). inotify tells the
others at once, and nobody polls. A write to the file is no signal: it happens before the commit is visible,
and nothing follows. Touching its time would work, but makes the next flush of the file dearer: under
`synchronous=FULL` a lone commit then takes a fifth longer. (SQLite holds its locks on the other two files, so
closing this one drops none.) A slow poll is the fallback if the writer died in between, the file was created
anew, or there is no inotify. The same poll detects that the file was removed or replaced.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import LogCorruptError
from noesium_stream.log.embedded.wakeup import Place, Signal
from noesium_stream.log.sqlite.alive import file_of_life

if sys.platform == "linux":
    import inotify_simple as _inotify_simple

    inotify_simple: Any = _inotify_simple
else:
    inotify_simple = None

POLL_S: Final = 0.5
POLL_WITHOUT_INOTIFY_S: Final = 0.02
_LET_GO_S: Final = 0.01
"""The system says that a file was closed just before it lets go of the file's locks."""


class OpenFile:
    """The identity of the opened file: SQLite goes on reading and writing a file that was removed.

    A process that opens the path afterwards gets another file, and everything written here is lost with this
    process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._was: tuple[int, int] | None = None
        self._was = self._now()

    def require(self) -> None:
        """Raise `LogCorruptError` if the path no longer names this file."""
        if self._now() != self._was:
            raise LogCorruptError(
                f"{self._path} was removed or replaced while it was open.",
                hint="Start this process again, with the log that is there now; or put the file back first.",
            )

    def _now(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return None
        except OSError:
            return self._was  # an unreadable path is not a removed file
        return found.st_dev, found.st_ino


class Waker:
    """Notifies `changes`, and before it `others`, when another connection has committed to the file.

    It calls `check` now and then, to see whether the file still exists.

    Attributes:
        deaths: how often a member of a group, here or in another process, has let go of its lock (`alive`),
            once they are watched.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        changes: Signal,
        others: Callable[[], None],
        check: Callable[[], None],
    ) -> None:
        self.deaths = 0
        self._wal = f"{path}-wal"
        self._life = str(file_of_life(path))
        self._wal_watch: int | None = None
        self._life_watch: int | None = None
        self._connection = connection
        self._changes = changes
        self._others = others
        self._check = check
        self._version = self._data_version()
        self._inotify: Any = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch; harmless when repeated."""
        if self._task is not None:
            return
        self._arm()
        self._task = asyncio.get_running_loop().create_task(self._poll(), name="noesium log poll")

    def tell(self, places: Collection[Place] | None = None) -> None:
        """Wake others: a commit of this process is visible; `places` as in `Signal.notify`."""
        self._changes.notify(places)
        try:
            os.close(os.open(self._wal, os.O_RDONLY))
        except OSError:
            # The next commit creates the file anew; until then the others' poll finds this commit.
            return

    def watch_life(self) -> None:
        """Watch the locks of the members of groups, too; harmless when repeated."""
        if self._inotify is not None and self._life_watch is None:
            flags = inotify_simple.flags
            with suppress(OSError):  # the file is gone: the next beat makes it again
                self._life_watch = self._inotify.add_watch(
                    self._life, flags.CLOSE_WRITE | flags.DELETE_SELF | flags.MOVE_SELF
                )

    def look(self) -> None:
        """Wake this process's readers if another connection has committed."""
        version = self._data_version()
        if version != self._version:
            self._version = version
            self._others()
            self._changes.notify()

    def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._disarm()

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_WITHOUT_INOTIFY_S if self._inotify is None else POLL_S)
            if self._inotify is None:
                self._arm()
            self.look()
            self._check()

    def _arm(self) -> None:
        if inotify_simple is None or not os.path.exists(self._wal):
            return
        flags = inotify_simple.flags
        try:
            inotify = inotify_simple.INotify()
        except OSError:
            # This user has no inotify instance left: the poll has to do.
            return
        try:
            mask = flags.CLOSE_NOWRITE | flags.DELETE_SELF | flags.MOVE_SELF
            self._wal_watch = inotify.add_watch(self._wal, mask)
        except OSError:
            inotify.close()
            return
        self._inotify = inotify
        asyncio.get_running_loop().add_reader(inotify.fileno(), self._on_change)

    def _disarm(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = self._life_watch = None

    def _on_change(self) -> None:
        ended = (
            inotify_simple.flags.IGNORED | inotify_simple.flags.DELETE_SELF | inotify_simple.flags.MOVE_SELF
        )
        gone = False
        for event in self._inotify.read(timeout=0):
            if event.wd == self._wal_watch:
                gone |= bool(event.mask & ended)
            elif event.mask & ended:
                self._life_watch = None
            else:
                asyncio.get_running_loop().call_later(_LET_GO_S, self._died)
        if gone:
            self._disarm()
        self.look()

    def _died(self) -> None:
        self.deaths += 1
        self._changes.notify()
