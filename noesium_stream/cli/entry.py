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


def main(args: Sequence[str] | None = None) -> None:
    """Run `noesium` and leave the process with its exit code."""
    given = sys.argv[1:] if args is None else args
    # What these import takes a second, in which it may be told to stop already.
    if next((arg for arg in given if not arg.startswith("-")), None) in ("worker", "project"):
        signal.signal(signal.SIGTERM, _stop)
    try:
        code: int = import_module("noesium_stream.cli.app").run(args)
    except KeyboardInterrupt:
        os.write(2, b"\ninterrupted\n")
        code = INTERRUPTED
    sys.exit(code)


def _stop(number: int, frame: FrameType | None) -> None:
    """End a process that has not begun, as one that is at work ends on SIGTERM."""
    os.write(2, b"stopped\n")
    sys.exit(_TERMINATED if any(arg.startswith(_ENDS) for arg in sys.argv[1:]) else _STOPPED)
