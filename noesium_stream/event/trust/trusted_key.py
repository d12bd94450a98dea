"""A public key, the names that it may speak for, and when it is valid.

A *principal* is a name in which an event speaks: `alice` or `billing` for a person or a program (the agent id
of a client), `agent:clerk` for the workers of an agent type, `role:auditor` for a role. A key speaks for the
principals that it lists; one that lists `*` speaks for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import short

EVERYBODY: Final = "*"
AGENT: Final = "agent:"
ROLE: Final = "role:"

KEY_BYTES: Final = 32
MAX_PRINCIPALS: Final = 1_000
_MAX_PRINCIPAL: Final = 256
_KEY_ID: Final = re.compile(r"[!-~]{1,256}")

_FIELD: Final = 2**255 - 19
_SIGN: Final = 1 << 255
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})
"""The y coordinates of the eight points whose order divides 8: such a key verifies signatures of anybody."""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key that signatures are verified with.

    Attributes:
        key_id: the id under which signatures name it.
        public_key: the key.
        speaks_for: principals in whose names it may speak.
        not_before_ms, not_after_ms: when records that it signs count, by the log's time of the append
            (milliseconds since the epoch); None: no bound.
        revoked_ms: from when on they count no more; None: it is not revoked.
    """

    key_id: str
    public_key: Ed25519PublicKey
    speaks_for: frozenset[str] = frozenset({EVERYBODY})
    not_before_ms: int | None = None
    not_after_ms: int | None = None
    revoked_ms: int | None = None

    def speaks(self, principal: str) -> bool:
        """Whether it may speak in this name."""
        return principal in self.speaks_for or EVERYBODY in self.speaks_for

    @property
    def speaks_for_everybody(self) -> bool:
        """Whether it is an operator's, who may speak in any name."""
        return EVERYBODY in self.speaks_for

    @property
    def roles(self) -> frozenset[str]:
        """The roles that it speaks for, without `role:`."""
        return frozenset(name.removeprefix(ROLE) for name in self.speaks_for if name.startswith(ROLE))

    def problem_at(self, at_ms: int) -> str | None:
        """Why a record that the log took at this time does not count; None: it counts."""
        if self.revoked_ms is not None and at_ms >= self.revoked_ms:
            return f"the key {short(self.key_id)} was revoked at {to_rfc3339(self.revoked_ms)}"
        if self.not_before_ms is not None and at_ms < self.not_before_ms:
            return f"the key {short(self.key_id)} is valid from {to_rfc3339(self.not_before_ms)} on"
        if self.not_after_ms is not None and at_ms >= self.not_after_ms:
            return f"the key {short(self.key_id)} was valid until {to_rfc3339(self.not_after_ms)}"
        return None


def checked_key(key_id: str, key: Ed25519PublicKey | bytes) -> Ed25519PublicKey:
    """A public key of Ed25519, from its 32 bytes or as it is.

    Raises:
        ConfigError: it is no such key, is not encoded in the one allowed way, or its point has a small order,
            so that anybody can make signatures that it verifies (RFC 8032, section 5.1.3 and 5.1.7).
    """
    data = key.public_bytes_raw() if isinstance(key, Ed25519PublicKey) else key
    if not isinstance(data, bytes) or len(data) != KEY_BYTES:
        raise ConfigError(f"the key {short(key_id)} is not a public key of Ed25519 (32 bytes).")
    y = int.from_bytes(data, "little") & ~_SIGN
    if y >= _FIELD:
        raise ConfigError(f"the key {short(key_id)} is not in its one allowed form: it is no public key.")
    if y in _SMALL_ORDER:
        raise ConfigError(f"the key {short(key_id)} is a point of small order: anybody can sign for it.")
    return Ed25519PublicKey.from_public_bytes(data)


def check_key_id(key_id: str) -> None:
    """Check a key's id.

    Raises:
        ConfigError: it has other than 1 to 256 visible characters of ASCII.
    """
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise ConfigError(
            f"the key id {short(key_id)} cannot sign records.",
            hint="An id has up to 256 letters, digits and signs of ASCII, and no space.",
        )


def checked_principals(names: Iterable[str]) -> frozenset[str]:
    """The principals with these names.

    Raises:
        ConfigError: there are none or more than 1,000, or a name is empty, too long, or has no visible form.
    """
    found = frozenset(names)
    if not 1 <= len(found) <= MAX_PRINCIPALS:
        raise ConfigError(f"a key speaks for 1 to {MAX_PRINCIPALS:,} names, not for {len(found):,}.")
    for name in found:
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _MAX_PRINCIPAL:
            raise ConfigError(
                f"{short(name)} is no name that a key can speak for.",
                hint="Names are alice (a person or program), agent:TYPE, role:NAME, or * for everybody.",
            )
    return found
