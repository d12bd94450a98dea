"""Files that a person writes for the product, read up to a bound."""

from __future__ import annotations

from pathlib import Path

from noesium_stream.errors import ConfigError


def read_small(path: Path, most: int, what: str) -> bytes:
    """The bytes of a file, which is `what` in an error.

    Raises:
        ConfigError: it cannot be read, or has more than `most` bytes.
    """
    try:
        with path.expanduser().open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise ConfigError(f"{path} is no {what}: {error.strerror or error}.") from None
    if len(data) > most:
        raise ConfigError(f"{path} is no {what}: it has more than {most:,} bytes.")
    return data
