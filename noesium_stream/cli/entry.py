"""Entry point of `noesium`: imports almost nothing, so that Ctrl-C is handled from the start."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib import import_module

from noesium_stream.cli import collector
from noesium_stream.cli.exits import INTERRUPTED
from noesium_stream.cli.signals import begins, say, take_signals


def main(args: Sequence[str] | None = None) -> None:
    """Run `noesium` and exit the process with its exit code."""
    try:
        given = sys.argv[1:] if args is None else list(args)
        if threading.current_thread() is threading.main_thread():
            take_signals(given)
            collector.pause()
        code: int = import_module("noesium_stream.cli.app").run(given)
    except KeyboardInterrupt:
        say("\ninterrupted")
        code = INTERRUPTED
    finally:
        collector.resume()
        begins()
    sys.exit(code)
