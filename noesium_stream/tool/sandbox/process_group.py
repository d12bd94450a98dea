"""A bound on processes that holds for the user root, too: a cgroup with the controller `pids`.

`setrlimit` bounds the processes of a user, and none of root's. Whoever looks for what is too many every some
milliseconds is late: a fork bomb has taken all process numbers of the machine by then. In a group the kernel
refuses each process that would be one too many. Where no group can be made (no right, no such controller, or
another system), looking has to do.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_ROOTS: Final = {"pids": Path("/sys/fs/cgroup/pids"), "": Path("/sys/fs/cgroup")}
"""Where the groups of the first version's controller and those of the second version are mounted."""
_OWN: Final = Path("/proc/self/cgroup")
_LIMIT: Final = "pids.max"
_MEMBERS: Final = "cgroup.procs"


class ProcessGroup:
    """A group of processes that has a bound.

    Args:
        folder: of the group, which was made for it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def make(cls, most: int) -> ProcessGroup | None:
        """Make a group, below this process's own, that may have so many processes and threads.

        None: this user is bounded by `setrlimit`, or no group can be made here.
        """
        if os.geteuid() != 0:
            return None
        for above in _own_groups():
            _sweep(above)
            folder = above / f"noesium-{os.getpid()}-{secrets.token_hex(6)}"
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / _LIMIT).write_text(str(most))
            except OSError:
                cls(folder).remove()
                continue
            return cls(folder)
        return None

    def take(self, pids: Iterable[int]) -> None:
        """Take processes into the group; all that they start is in it. One that has ended is passed over.

        Raises:
            OSError: the system refuses it.
        """
        for pid in pids:
            with suppress(ProcessLookupError):
                (self._folder / _MEMBERS).write_text(str(pid))

    def remove(self) -> None:
        """Remove the group, in which nobody is any more; what is left is empty, and harms nobody."""
        with suppress(OSError):
            self._folder.rmdir()


def _sweep(above: Path) -> None:
    """Remove the groups of workers that were killed; one that anybody is in stays."""
    for folder in above.glob("noesium-*-*"):
        pid = folder.name.split("-")[1]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            ProcessGroup(folder).remove()


def _own_groups() -> list[Path]:
    """The groups of this process that may bound processes: of the first version, then of the second."""
    try:
        lines = _OWN.read_text().splitlines()
    except OSError:
        return []
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    found = [root / paths[name].lstrip("/") for name, root in _ROOTS.items() if name in paths]
    return [folder for folder in found if (folder / _MEMBERS).exists()]
