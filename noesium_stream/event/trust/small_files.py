"""Files that a person writes for the product, read up to a bound."""

from __future__ import annotations

from pathlib import Path

from noesium_stream.errors import ConfigError


def read_small(path: Path, most: int, what: str, named_by: str | None = None) -> bytes:
    """The bytes of a file, which is `what` in an error.

    Args:
        path: the file.
        most: its bytes at most.
        what: it is, for an error.
        named_by: what names the file, for the hint of an error; None: the caller's error says it.

    Raises:
        ConfigError: it cannot be read, or has more than `most` bytes.
    """
    try:
        with path.expanduser().open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        which = "" if named_by is None else f", or name another one: {named_by} names it"
        raise ConfigError(
            f"{path} is no {what}: {error.strerror or error}.",
            hint=f"Give a file there that this user may read{which}.",
        ) from None
    if len(data) > most:
        raise ConfigError(f"{path} is no {what}: it has more than {most:,} bytes.")
    return data
