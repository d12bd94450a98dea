"""Where the command starts: imports next to nothing itself, so that Ctrl-C is caught from here on."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
_STOPPED: Final = 0
_TERMINATED: Final = 143
_ENDS: Final = ("--once", "--rebuild", "--export")
"""Options of a `project` that has something to finish."""
_told: list[int] = []
"""The exit codes that signals ask for which came before the command began."""


def main(args: Sequence[str] | None = None) -> None:
    """Run `noesium` and leave the process with its exit code."""
    given = sys.argv[1:] if args is None else args
    # What a command imports takes a second, in which it may be told to end already. Whoever ignores Ctrl-C
    # (`nohup`, a job in the background of a shell) has said so before.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if next((arg for arg in given if not arg.startswith("-")), None) in ("worker", "project"):
        signal.signal(signal.SIGTERM, _stop)
    try:
        code: int = import_module("noesium_stream.cli.app").run(args)
    except KeyboardInterrupt:
        os.write(2, b"\ninterrupted\n")
        code = INTERRUPTED
    sys.exit(code)


def told() -> int | None:
    """The exit code with which a signal asked this process to end before its command began.

    The signal raises where the program stands, and an import may make an error of its own of that (the
    `SchemaError` of pydantic, an agent's module that could not be imported) or keep it to itself.
    """
    return _told[0] if _told else None


def begins() -> None:
    """The command begins now: Ctrl-C is from here on what asyncio does with it.

    Raises:
        KeyboardInterrupt, SystemExit: a signal asked for the end before.
    """
    code = told()
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if code is not None:
        sys.exit(code)
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _told.append(INTERRUPTED)
    raise KeyboardInterrupt


def _stop(number: int, frame: FrameType | None) -> None:
    """End a process that has not begun, as one that is at work ends on SIGTERM."""
    os.write(2, b"stopped\n")
    _told.append(_TERMINATED if any(arg.startswith(_ENDS) for arg in sys.argv[1:]) else _STOPPED)
    sys.exit(_told[0])
