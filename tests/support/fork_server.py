"""Python programs that start at once: forks of a process that has everything loaded.

    start(["noesium_stream.cli", "runs"], cwd, env)         as `python -m noesium_stream.cli runs` would

A new Python takes one or two seconds to import what a command needs, and the tests start many hundreds. The
server imports that once for each process of the tests. It has no thread and no event loop, and it ends, with
all that it forked, when its tests do. A program that it forks runs its module as `__main__`, in its own
folder and environment, and ends as any Python program ends.

A shell of a test gets such programs by `tests/support/forked_command.py`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from noesium_stream.cli.app import COMMANDS
from noesium_stream.purity import blame

ROOT = Path(__file__).parents[2]
LOADED = (
    "langgraph.graph",
    "noesium_stream.client",
    "noesium_stream.log.kafka.log",
    "noesium_stream.log.sqlite.store",
    "noesium_stream.projection",
    "noesium_stream.worker",
    "noesium_stream.cli.app",
)

PREFIXES = ("NOESIUM_", "XDG_", "PYTEST_")
NAMES = {
    "COLUMNS",
    "FORCE_COLOR",
    "HOME",
    "NO_COLOR",
    "OLDPWD",
    "PATH",
    "PWD",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "SHLVL",
    "TERM",
    "_",
}
"""Variables that are read when they are used: in these, the programs of one server may differ."""

_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 1 << 17


class Forked:
    """A program that the server has forked: what the tests use of `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], told: IO[str], stdout: IO[str], stderr: IO[str]) -> None:
        self.args = args
        self.stdout, self.stderr = stdout, stderr
        self.returncode: int | None = None
        self._told = told
        self.pid = self._number()

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._end()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._end()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _end(self) -> None:
        self.returncode = self._number()
        self._told.close()

    def _number(self) -> int:
        line = self._told.readline()
        if not line:
            raise RuntimeError(f"the fork server has ended: {self.args}")
        return int(line)


def start(args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Forked | None:
    """Start the module `args[0]`; None where only a process of its own gets this environment."""
    if not may_be(env):
        return None
    request = json.dumps({"args": list(args), "cwd": str(cwd), "env": dict(env)}).encode()
    ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        socket.send_fds(server(), [request], [nothing, *theirs])
    finally:
        for file in (nothing, *theirs):
            os.close(file)
    out, err, told = (open(file, encoding="utf-8") for file in ours)  # noqa: SIM115 - closed by who reads them
    return Forked(args, told, out, err)


def may_be(env: Mapping[str, str]) -> bool:
    """Whether a program of this process's server may have this environment."""
    differ = {name for name, _ in env.items() ^ os.environ.items()}
    return all(name in NAMES or name.startswith(PREFIXES) for name in differ)


@cache
def server() -> socket.socket:
    """What the server of this process is asked by; it ends when that is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    theirs.close()
    atexit.register(_end, ours, process)
    return ours


def _end(asked: socket.socket, process: subprocess.Popen[bytes]) -> None:
    with asked:
        asked.send(b"")  # a program that was started by a shell may still have the socket open
    process.wait()


# -- the server ------------------------------------------------------------------------------------------


def load() -> None:
    """Import what programs need."""
    for name in LOADED:
        importlib.import_module(name)
    for module, _ in COMMANDS.values():
        importlib.import_module(f"noesium_stream.cli.commands.{module}")
    gc.collect()
    gc.freeze()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in what is forked"


class _Child(NamedTuple):
    pid: int
    tell: int
    """The file that its end is told to."""


def serve(asked: socket.socket) -> dict[str, Any] | None:
    """Fork what is asked for until nobody asks any more; in what was forked: return what it is to run."""
    tests = os.pidfd_open(os.getppid())
    children: dict[int, _Child] = {}  # by the file that is ready at its end
    standing: dict[int, int] = {}  # by the file that is ready at the end of who stands for a child: its own
    while True:
        ready = select.select([asked, tests, *children, *standing], [], [])[0][0]
        if ready == tests:
            return None
        if ready in standing:
            signal.pidfd_send_signal(standing.pop(ready), signal.SIGKILL)
            os.close(ready)
            continue
        if ready in children:
            ended = children.pop(ready)
            with suppress(BrokenPipeError):  # who stood for it was killed
                os.write(ended.tell, f"{os.waitstatus_to_exitcode(os.waitpid(ended.pid, 0)[1])}\n".encode())
            for file in (ready, ended.tell, *(key for key, child in standing.items() if child == ready)):
                os.close(file)
            standing = {key: child for key, child in standing.items() if child != ready}
            continue
        text, files, _, _ = socket.recv_fds(asked, _MOST_BYTES, 4)
        if not text:
            return None
        request: dict[str, Any] = json.loads(text)
        stands_for_it = request.pop("stands_for_it", None)
        pid = os.fork() if stands_for_it is None or may_be(request["env"]) else None
        if pid == 0:
            for file in (tests, *children, *standing, *(child.tell for child in children.values())):
                os.close(file)
            asked.close()
            _take(files)
            return request
        os.write(files[3], f"{pid or 0}\n".encode())
        for file in files[:3]:
            os.close(file)
        if pid is None:
            os.close(files[3])
            continue
        child = os.pidfd_open(pid)
        children[child] = _Child(pid, files[3])
        if stands_for_it is not None:
            standing[os.pidfd_open(stands_for_it)] = child


def _take(files: list[int]) -> None:
    """Make these the standard input, output and error of this process, which does not outlive the server."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    for new, file in enumerate(files[:3]):
        os.dup2(file, new)
    for file in files:
        os.close(file)


def run(args: list[str], cwd: str, env: dict[str, str], *, safe_path: bool = False) -> None:
    """Be `python -m ARGS` in a folder and an environment; `python -P -m ARGS` with `safe_path`."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:1] = [] if safe_path else [cwd]
    importlib.invalidate_caches()
    vars(blame).update(_FOLDER=cwd)  # which that module looks up when it is imported
    sys.argv[:] = args
    runpy.run_module(args[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    load()
    found = serve(socket.socket(fileno=int(sys.argv[1])))
    if found is not None:
        run(**found)
