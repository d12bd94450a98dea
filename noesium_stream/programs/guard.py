"""Guard of one program: a script, `python -I -S guard.py CONTROL FOLDER NAMES PROGRAM [ARGUMENT …]`.

It starts the program in a process group of its own, with the variables NAMES (`PATH,HOME`) alone, and ends
that group when it is told to, when the program ends, and when its owner is gone, however that came about: a
SIGKILL of the owner closes the pipe CONTROL. The owner writes `T` there to ask the program to end (SIGTERM),
and closes it to have it killed. The guard passes the program's exit status on (128 + N for signal N), and
removes FOLDER, unless that is empty.

Decision record: a process between the owner and the program costs 5 MB and 20 ms. Without it nobody is left
to end the program's own children when the owner is killed: PR_SET_PDEATHSIG reaches the direct child alone,
and needs code between fork and exec, which the owner, who has threads, must not run. It also makes signals
safe: only the guard sends them, and it has not reaped the program yet, so the number is no other process's.
On Linux a process that leaves the group (`setsid`) becomes a child of the guard when its parent ends, and is
killed, too.

It imports no part of the package: it has to start quickly, whatever the environment is.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PDEATHSIG, _SUBREAPER = 1, 36
_PATIENCE_S = 5.0
_PAUSE_S = 0.002
_CANNOT_START = 127
_HAS_WAITID = hasattr(os, "waitid")
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def main(control: int, folder: str, names: list[str], command: list[str]) -> int:
    """Guard a program; return its exit status."""
    os.set_inheritable(control, False)
    prctl = _prctl()
    prctl(_SUBREAPER, 1)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    guard = os.getpid()
    program = os.fork()
    if program == 0:
        _become(command, names, guard, prctl)
    # The program alone has these: else its owner would not see that it closes them.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    ended = _watch(control, woken, program)
    _kill_group(program, signal.SIGKILL, reaped=ended is not None)
    status = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1] if ended is None else ended)
    _kill_children()
    _remove(folder)
    return status if status >= 0 else 128 - status


def _become(command: list[str], names: list[str], guard: int, prctl: Callable[..., int]) -> None:
    """Become the program: what the guard has changed of signals is as it was."""
    try:
        os.setsid()
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(_CANNOT_START)
        signal.set_wakeup_fd(-1)
        for changed in (*_IGNORED, *_BY_PYTHON, signal.SIGCHLD):
            signal.signal(changed, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        # Python itself may have added LC_CTYPE.
        os.execve(command[0], command, {name: os.environ[name] for name in names})
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode(errors="backslashreplace"))
    finally:
        os._exit(_CANNOT_START)


def _watch(control: int, woken: int, program: int) -> int | None:
    """Return when the program has ended, or has to; its status, if it had to be reaped for that."""
    while True:
        if _HAS_WAITID:
            if os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return None
        else:  # macOS: the group may end before it is killed
            reaped, status = os.waitpid(program, os.WNOHANG)
            if reaped:
                return status
        ready, _, _ = select.select([control, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
        if control in ready:
            if not os.read(control, 1):
                return None
            _kill_group(program, signal.SIGTERM)


def _kill_group(program: int, number: int, *, reaped: bool = False) -> None:
    """Signal the program's group, which may not be there yet, or not any more."""
    for kill in (os.killpg,) if reaped else (os.killpg, os.kill):
        try:
            kill(program, number)
        except ProcessLookupError:
            continue
        return


def _kill_children() -> None:
    """Kill and reap what has left the group: it has become the guard's own, if the system does that."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            for child in path.read_text().split():
                os.kill(int(child), signal.SIGKILL)
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_PAUSE_S)
        except (OSError, ValueError):
            return  # there are none, or this system does not tell


def _remove(folder: str) -> None:
    if folder:
        import shutil  # noqa: PLC0415

        shutil.rmtree(folder, ignore_errors=True)


def _prctl() -> Callable[..., int]:
    """Linux's `prctl`; elsewhere a function that does nothing."""
    try:
        import ctypes  # noqa: PLC0415

        function: Callable[..., int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return lambda *_: 0
    return function


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], [n for n in sys.argv[3].split(",") if n], sys.argv[4:]))
