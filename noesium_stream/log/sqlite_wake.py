"""Waking readers of a SQLite log in other processes.

Every commit is followed, when it is visible, by opening and closing the `-wal` file (3 µs); inotify tells
the others at once, and nobody polls. Writing to the file would not do: it happens before the commit is
visible, and nothing follows. Touching its time would, but makes the next flush of the file dearer: under
`synchronous=FULL` a lone commit then takes a fifth longer. (SQLite holds its locks on the other two files,
so that closing this one lets go of none.) A slow poll is the net where the writer died in between, the file
was made anew, or there is no inotify.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from noesium_stream.log.wakeup import Place, Signal

if sys.platform == "linux":
    import inotify_simple as _inotify_simple

    inotify_simple: Any = _inotify_simple
else:
    inotify_simple = None

POLL_S: Final = 0.5
POLL_WITHOUT_INOTIFY_S: Final = 0.02


class Waker:
    """Tells `changes`, and before it `others`, when another connection has committed to the file.

    `check` is called now and then: it looks whether the file is there still.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        changes: Signal,
        others: Callable[[], None],
        check: Callable[[], None],
    ) -> None:
        self._wal = f"{path}-wal"
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
            # The file is made anew by the next commit; until then the others' poll finds this one.
            return

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
            # No inotify instance is left to this user: the poll has to do.
            return
        try:
            inotify.add_watch(self._wal, flags.CLOSE_NOWRITE | flags.DELETE_SELF | flags.MOVE_SELF)
        except OSError:
            inotify.close()
            return
        self._inotify = inotify
        asyncio.get_running_loop().add_reader(inotify.fileno(), self._on_change)

    def _disarm(self) -> None:
        if self._inotify is not None:
            asyncio.get_running_loop().remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _on_change(self) -> None:
        ended = (
            inotify_simple.flags.IGNORED | inotify_simple.flags.DELETE_SELF | inotify_simple.flags.MOVE_SELF
        )
        if any(event.mask & ended for event in self._inotify.read(timeout=0)):
            self._disarm()
        self.look()
