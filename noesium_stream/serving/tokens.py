"""Bearer tokens: a file of their hashes, each with the name in which its bearer asks.

    [tokens]
    "sha256:9f86d0…" = "alice"

The file has no token itself: whoever reads it can ask for nothing.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.trust.small_files import read_small
from noesium_stream.event.trust.trusted_key import AGENT, ROLE, checked_principals

MAX_FILE_BYTES: Final = 1_000_000
MOST_TOKEN: Final = 512
"""Characters of a token."""
_HASH: Final = re.compile(r"sha256:[0-9a-f]{64}")


def token_hash(token: str) -> str:
    """Return the hash of a token, as the file has it."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def new_token() -> str:
    """Make a token that nobody can guess."""
    return secrets.token_urlsafe(32)


def read_tokens(path: Path) -> Mapping[str, str]:
    """Read the names by the hashes of their tokens.

    Raises:
        ConfigError: the file cannot be read, or has something else; names the place.
    """
    data = read_small(path, MAX_FILE_BYTES, "file of tokens")
    hint = '[tokens] holds lines such as "sha256:HASH" = "alice"; noesium a2a token NAME prints one.'
    try:
        table = tomllib.loads(data.decode()).get("tokens")
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The tokens {path} are no TOML: {error}.", hint=hint) from None
    if not isinstance(table, dict) or not table:
        raise ConfigError(f"The tokens {path} have no table [tokens], or an empty one.", hint=hint)
    for hashed, name in table.items():
        if not _HASH.fullmatch(hashed):
            raise ConfigError(f"The tokens {path} have {short(hashed)}, which is no hash.", hint=hint)
        check_name(name)
    return table


def check_name(name: object) -> None:
    """Check the name of a person or program.

    Raises:
        ConfigError: it is none, or that of an agent or a role.
    """
    if not isinstance(name, str) or name.startswith((AGENT, ROLE)) or name == "*":
        raise ConfigError(
            f"{short(str(name))} is no name for a bearer of a token.",
            hint="Give the name of a person or program, as in a policy: alice.",
        )
    checked_principals([name])
