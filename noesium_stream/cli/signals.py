"""Signal handling before and after a command begins, and Ctrl-C until asyncio handles it.

Decision record: until the command itself begins (`begins`), which its imports may delay by a second, a signal
ends the process at once. An exception raised by a handler during an import may turn into an error of the
import (pydantic's `SchemaError`, an agent's module that could not be imported), or get lost. Nothing is open
by then that would have to be closed.
"""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final, ParamSpec, TypeVar

from noesium_stream.cli import collector
from noesium_stream.cli.exits import INTERRUPTED

P = ParamSpec("P")
T = TypeVar("T")

_STOPPED: Final = 0
_TERMINATED: Final = 143
_FINISHING: Final = frozenset({"--once", "--rebuild", "--migrate", "--export"})
"""Options of `project` with which it has work to finish."""


def begins() -> None:
    """Restore the default handling of Ctrl-C (asyncio or `KeyboardInterrupt`): the command begins now.

    The garbage collector is on again from here, too.
    """
    collector.resume(spare=True)
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def synchronous(command: Callable[P, T]) -> Callable[P, T]:
    """Make a command from a plain function."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        begins()
        return command(*args, **kwargs)

    return run


def stop(number: int, frame: FrameType | None) -> None:
    """End a process before its command begins, with the exit code of a command that SIGTERM stops."""
    _leave("stopped", _STOPPED)


def break_off(number: int, frame: FrameType | None) -> None:
    """End a process that has work to finish, with the exit code of a command that SIGTERM interrupts."""
    _leave("stopped", _TERMINATED)


def take_signals(given: Sequence[str]) -> None:
    """Install the signal handlers that are active until the command begins."""
    # An ignored Ctrl-C (`nohup`, a background job of a shell) stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    command = next((arg for arg in given if not arg.startswith("-")), None)
    if command in ("worker", "project"):
        ends = command == "project" and not _FINISHING.isdisjoint(arg.partition("=")[0] for arg in given)
        signal.signal(signal.SIGTERM, break_off if ends else stop)


def say(text: str) -> None:
    """Write a line to standard error; ignore a closed one."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())


def _interrupt(number: int, frame: FrameType | None) -> None:
    _leave("\ninterrupted", INTERRUPTED)


def _leave(text: str, code: int) -> None:
    say(text)
    os._exit(code)
