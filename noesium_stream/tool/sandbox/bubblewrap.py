"""The sandbox of bubblewrap (`bwrap`, Debian's `bubblewrap`): namespaces, mounts and a seccomp filter.

The program sees a root of its own: `/usr` and what belongs to it, read-only; `/workspace`; an empty `/tmp`;
its own `/proc`, in which there is nobody else. It has no capability, cannot gain any, and without network no
way to other processes at all. When the worker dies, the kernel kills bwrap, and with it everything inside.

bwrap asks the kernel for that as its first act. A worker that is killed a moment before would leave a program
behind; so the program waits, inside its walls, until the worker has seen that they stand and says so.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Final

from noesium_stream.errors import SandboxError
from noesium_stream.tool.sandbox.mounts import mounts_of, open_folder
from noesium_stream.tool.sandbox.result import SandboxResult
from noesium_stream.tool.sandbox.running import (
    OWN_PROCESSES,
    Running,
    first_line,
    handles_of_children,
    kill_children,
    kill_process,
    released,
    spawned,
    supervised,
)
from noesium_stream.tool.sandbox.syscall_filter import syscall_filter
from noesium_stream.tool.sandbox.walled import WalledCommand
from noesium_stream.tool.sandbox.walls import Limits, Walls

WORKSPACE: Final = "/workspace"
SCRATCH: Final = "/tmp"  # nosec B108 - inside the sandbox
_SHARED: Final = "/dev/shm"  # nosec B108 - inside the sandbox
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
    "LANG": "C.UTF-8",
    "PWD": WORKSPACE,
}
_SYSTEM: Final = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_SETTINGS: Final = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/ssl/certs")
_NETWORK_SETTINGS: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf")
_VIRTUAL: Final = 4
"""Times the memory limit is the address space of one process: programs reserve much that they never use."""
_WAITING: Final = "printf r; read -r go || exit; "
"""What `released` waits for, and answers."""
_PROBE_S: Final = 10
_HINT: Final = "Install bubblewrap 0.8 or newer (Debian: apt install bubblewrap)."


@dataclass(frozen=True)
class Bubblewrap:
    """Runs programs by the `bwrap` at the path `program`."""

    program: str
    name: str = "bubblewrap"

    @asynccontextmanager
    async def start(self, command: Sequence[str], walls: Walls) -> AsyncIterator[Running]:
        """See `Sandbox.start`."""
        async with supervised(self._started(command, walls)) as running:
            yield running

    async def run(self, command: Sequence[str], walls: Walls, *, stdin: bytes = b"") -> SandboxResult:
        """See `Sandbox.run`."""
        async with self.start(command, walls) as running:
            return await running.result(stdin)

    def walled(self, command: Sequence[str], walls: Walls, opened: ExitStack) -> WalledCommand:
        """See `Sandbox.walled`."""
        arguments, fds = arguments_of(walls, opened)
        script = ("--", "/bin/sh", "-c", _WAITING + limiting(walls.limits), "sh")
        variables = {**walls.environment, **ENVIRONMENT}
        return WalledCommand((self.program, *arguments, *script, *command), variables, tuple(fds))

    async def _started(self, command: Sequence[str], walls: Walls) -> Running:
        with ExitStack() as opened:
            process = await spawned(self.walled(command, walls, opened))
        group = await released(process, "bubblewrap", walls.limits)
        # bwrap ends with the program; its child, the first process inside, ends after all that are inside.
        inside = handles_of_children(process.pid)
        return Running(process, walls.limits, partial(_kill, process), inside, group=group)


def _kill(process: asyncio.subprocess.Process) -> None:
    if not kill_children(process.pid):
        kill_process(process)


def arguments_of(walls: Walls, opened: ExitStack) -> tuple[list[str], list[int]]:
    """The arguments that build the walls, and the file descriptors in them, which `opened` closes.

    Raises:
        SandboxError: a folder cannot be opened, a program is below a `/tmp` that is kept, or there is no
            filter for this machine.
    """
    arguments = ["--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"]
    arguments += ["--share-net"] if walls.network else []
    arguments += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "sandbox"]
    arguments += _system(network=walls.network)
    scratch = str(walls.limits.scratch_bytes)
    arguments += ["--proc", "/proc", "--dev", "/dev", "--size", scratch, "--tmpfs", _SHARED]
    arguments += ["--remount-ro", "/dev"]
    fds = []
    if walls.scratch is None:
        arguments += ["--size", scratch, "--tmpfs", SCRATCH]
    else:
        _check_apart(walls.programs)
        fds.append(open_folder(walls.scratch, "The scratch folder", opened))
        arguments += ["--bind-fd", str(fds[-1]), SCRATCH]
    arguments += ["--dir", WORKSPACE]
    for program in walls.programs:
        arguments += ["--ro-bind", str(program), str(program)]
    for mount in mounts_of(walls, opened):
        how = "--bind-fd" if mount.writable else "--ro-bind-fd"
        arguments += [how, str(mount.fd), f"{WORKSPACE}/{mount.path}".removesuffix("/")]
        fds.append(mount.fd)
    fds.append(_memory_file(syscall_filter(network=walls.network), opened))
    arguments += [
        "--seccomp",
        str(fds[-1]),
        "--remount-ro",
        "/proc",
        "--remount-ro",
        "/",
        "--chdir",
        WORKSPACE,
    ]
    return arguments, fds


def _check_apart(programs: Iterable[Path]) -> None:
    """Refuse programs below a `/tmp` that is kept.

    bwrap makes the folders of a mount by their path, and what an earlier command left there may be a link.
    """
    for program in programs:
        if Path(os.path.normpath(program)).is_relative_to(SCRATCH):
            raise SandboxError(
                f"{program} is in {SCRATCH}, and a sandbox with a {SCRATCH} that is kept cannot show it.",
                hint="Put it in a folder elsewhere.",
            )


def limiting(limits: Limits) -> str:
    """The script of `sh` that sets the limits of `setrlimit`, and then becomes the program."""
    memory = _VIRTUAL * limits.memory_bytes // 1024
    processes = limits.processes + OWN_PROCESSES
    seconds = int(limits.cpu_s) + 2 if math.isfinite(limits.cpu_s) else "unlimited"
    return (
        f"ulimit -c 0; ulimit -v {memory}; ulimit -f {max(1, limits.file_bytes // 512)}; "
        f"ulimit -t {seconds}; ulimit -n {limits.open_files}; "
        # The number of processes is -u in bash and -p in dash.
        f"if (ulimit -u {processes}) 2>/dev/null; then ulimit -u {processes}; "
        f"else ulimit -p {processes}; fi; "
        'exec "$@"'
    )


def _system(*, network: bool) -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for path in _SYSTEM:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    for path in (*_SETTINGS, *(_NETWORK_SETTINGS if network else ())):
        arguments += ["--ro-bind-try", os.path.realpath(path), path]
    return arguments


def _memory_file(content: bytes, opened: ExitStack) -> int:
    fd = os.memfd_create("seccomp")
    opened.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@lru_cache(1)
def find_bubblewrap() -> Bubblewrap:
    """The bubblewrap of this machine, after one try of all that is used of it.

    Raises:
        SandboxError: it is not installed, too old, or not allowed to make namespaces.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bubblewrap is not installed.", hint=_HINT)
    found = Bubblewrap(os.path.realpath(program))
    probe = ["--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/"]
    try:
        with ExitStack() as opened:
            root = os.open("/", os.O_PATH)
            opened.callback(os.close, root)
            probe += ["--ro-bind-fd", str(root), "/mnt", "--proc", "/proc", "--", "/bin/sh", "-c", ":"]
            subprocess.run(
                [found.program, *probe], capture_output=True, check=True, timeout=_PROBE_S, pass_fds=(root,)
            )
    except (OSError, subprocess.SubprocessError) as error:
        said = first_line(getattr(error, "stderr", None) or str(error).encode())
        raise SandboxError(
            f"bubblewrap cannot be used here: {said}",
            hint=f"{_HINT} It needs user namespaces (sysctl kernel.unprivileged_userns_clone, AppArmor).",
        ) from None
    return found
