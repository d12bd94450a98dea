"""Where the command starts: imports next to nothing itself, so that Ctrl-C is caught from here on.

Decision record: until the command itself begins (`begins`), which its imports may delay by a second, a signal
ends the process where it stands. An exception that a handler raises there may come out of an import as one of
its own (pydantic's `SchemaError`, an agent's module that could not be imported), or not at all. Nothing is
open by then that would have to be closed.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import FrameType
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPTED: Final = 130
_STOPPED: Final = 0
_TERMINATED: Final = 143
_ENDS: Final = frozenset({"--once", "--rebuild", "--migrate", "--export"})
"""Options of a `project` that has something to finish."""


def main(args: Sequence[str] | None = None) -> None:
    """Run `noesium` and leave the process with its exit code."""
    try:
        given = sys.argv[1:] if args is None else list(args)
        if threading.current_thread() is threading.main_thread():
            _take_signals(given)
        code: int = import_module("noesium_stream.cli.app").run(given)
    except KeyboardInterrupt:
        _say("\ninterrupted")
        code = INTERRUPTED
    finally:
        begins()
    sys.exit(code)


def begins() -> None:
    """The command begins now: what Ctrl-C does is asyncio's matter, or a `KeyboardInterrupt`."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def synchronous(command: Callable[P, T]) -> Callable[P, T]:
    """A function as a command."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        begins()
        return command(*args, **kwargs)

    return run


def stop(number: int, frame: FrameType | None) -> None:
    """End a process that has not begun, as one that is at work ends on SIGTERM."""
    _leave("stopped", _STOPPED)


def break_off(number: int, frame: FrameType | None) -> None:
    """The same of one that has something to finish."""
    _leave("stopped", _TERMINATED)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _leave("\ninterrupted", INTERRUPTED)


def _take_signals(given: Sequence[str]) -> None:
    # Whoever ignores Ctrl-C (`nohup`, a job in the background of a shell) has said so before.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    command = next((arg for arg in given if not arg.startswith("-")), None)
    if command in ("worker", "project"):
        ends = command == "project" and not _ENDS.isdisjoint(arg.partition("=")[0] for arg in given)
        signal.signal(signal.SIGTERM, break_off if ends else stop)


def _leave(text: str, code: int) -> None:
    _say(text)
    os._exit(code)


def _say(text: str) -> None:
    with suppress(OSError):  # nobody reads that any more
        os.write(2, f"{text}\n".encode())
