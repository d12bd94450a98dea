"""Marks of group members on this machine: a log elsewhere hears of a member's end only after a session.

A worker's process keeps a file in its home for each group that it has joined (`members/`), and holds a lock
on it for as long as it lives. Whoever joins the group later, with the same home on the same machine, and gets
the lock of such a file, knows that its process has died, and tells the group (`EventLog.dismiss`): a worker
that is started again after a `kill -9` takes its partitions at once.

A file of another start of the machine, or of another machine that shares the home, is left alone: locks of
files tell nothing there. Where a file system has no locks, nobody is taken for dead.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import EventStoreError
from noesium_stream.log.port import EventLog
from noesium_stream.private_files import make_folder

fcntl: Any = None
if sys.platform != "win32":
    import fcntl as _fcntl

    fcntl = _fcntl

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_LONGEST: Final = 4_096
"""Bytes of a file that are read."""

_MOST: Final = 1_000
"""Files that are looked at."""


class MemberMark:
    """The file by which others on this machine see that a member of a group lives.

    Args:
        home: the worker's.
        log: where the group is.
        group: its name.
        progress: takes a line for people.
    """

    def __init__(self, home: Path, log: EventLog, group: str, progress: Callable[[str], None]) -> None:
        self._folder = home / "members"
        self._log = log
        self._group = group
        self._progress = progress
        self._path: Path | None = None
        self._file: int | None = None

    def hold(self, member: str) -> None:
        """Say that this process is this member, until `let_go` or its end.

        A home that cannot be written is no error here: a death is then known when the session ends.
        """
        boot = _boot()
        if fcntl is None or boot is None:
            return
        about = {"boot": boot, "log": self._log_hash(), "group": self._group, "member": member}
        name = secrets.token_hex(8)
        new, path = self._folder / f".{name}", self._folder / f"{name}.json"
        try:
            make_folder(self._folder)
            self._file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._file, json.dumps(about).encode())
            new.rename(path)  # locked before anyone can see it
        except OSError as error:
            with suppress(OSError):
                new.unlink()
            self.let_go()
            self._progress(f"{self._folder} cannot be written ({error.strerror}): a kill is known later")
            return
        self._path = path

    def let_go(self) -> None:
        """Remove the file; harmless when there is none."""
        held, self._file = self._file, None
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None
        if held is not None:
            os.close(held)

    async def dismiss_the_dead(self) -> None:
        """Tell the group which of its members have died on this machine."""
        dead = self._dead()
        if not dead:
            return
        try:
            await self._log.dismiss(self._group, set(dead.values()))
        except EventStoreError as error:
            said = "members that have died stay until their session ends"
            self._progress(f"{self._group}: {said}: {error.message}")
            return
        for path in dead:
            path.unlink(missing_ok=True)

    def _dead(self) -> dict[Path, str]:
        """The members of this group whose processes have died, by the file that each has left."""
        boot, log = _boot(), self._log_hash()
        if fcntl is None or boot is None:
            return {}
        found = {}
        with suppress(OSError):
            for path in sorted(self._folder.glob("*.json"))[:_MOST]:
                about = _read_if_free(path)
                if about.get("boot") != boot:
                    continue
                if about.get("log") == log and about.get("group") == self._group:
                    found[path] = str(about.get("member"))
        return found

    def _log_hash(self) -> str:
        """The log without telling its address."""
        return hashlib.sha256(f"{self._log.url}\0{self._log.topology.namespace}".encode()).hexdigest()


def _read_if_free(path: Path) -> dict[str, Any]:
    """A file that nobody holds a lock on; empty if somebody does, or if it is no such file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return {}
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = json.loads(os.read(file, _LONGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    finally:
        os.close(file)
    return about if isinstance(about, dict) else {}


def _boot() -> str | None:
    """The id of this machine's start; None where it is not known."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return None
