"""Command line `noesium`."""

from noesium_stream.cli.entry import main

__all__ = ["main"]
