"""One module per command, imported when it is asked for (see `noesium_stream.cli.app`)."""
