"""`python -m noesium_stream.cli` is `noesium`."""

from noesium_stream.cli.entry import main

main()
