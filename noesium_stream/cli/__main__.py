"""Entry point of `python -m noesium_stream.cli`, the same as `noesium`."""

from noesium_stream.cli.entry import main

main()
