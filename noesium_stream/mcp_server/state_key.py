"""The secret that seals `requestState`: what clients hand back is taken by every process that has it."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.small_files import read_small
from noesium_stream.private_files import FILE_MODE, make_folder

FILE_NAME: Final = "mcp-state.key"
LEAST: Final = 32
"""Bytes of a key."""
_MOST: Final = 4_096
_HINT: Final = "Make one: head -c 32 /dev/urandom | base64 > FILE; all servers of one log need the same."


def read_state_key(path: Path) -> bytes:
    """Read the key; the white space around it does not count.

    Raises:
        ConfigError: the file cannot be read, or is too small; names it.
    """
    key = read_small(path, _MOST, "key of states").strip()
    if len(key) < LEAST:
        raise ConfigError(f"The key {path} has {len(key)} bytes, and needs {LEAST}.", hint=_HINT)
    return key


def own_state_key(home: Path) -> bytes:
    """Read the key of this machine's servers, in NOESIUM_HOME; the first server makes it.

    Raises:
        ConfigError: it can be neither read nor made.
    """
    path = home / FILE_NAME
    if not path.exists():
        _make(path)
    return read_state_key(path)


def _make(path: Path) -> None:
    """Make the file, whole or not at all; another server may be faster."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        make_folder(path.parent)
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE), "w") as file:
            file.write(secrets.token_hex(LEAST) + "\n")
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        finally:
            new.unlink()
    except OSError as error:
        raise ConfigError(f"The key {path} cannot be made: {error.strerror}.", hint=_HINT) from error
