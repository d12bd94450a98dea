"""Limits of the guarded client, and the private addresses that an operator has allowed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from noesium_stream.errors import ConfigError, ToolInputError
from noesium_stream.event.envelope_fields import short
from noesium_stream.tool.net.target import Target, parse_target

MAX_REDIRECTS: Final = 5
MAX_ADDRESSES: Final = 4
"""How many addresses of a host are tried."""


@dataclass(frozen=True, slots=True)
class NetSettings:
    """Settings of a guarded client.

    Attributes:
        allow_private: hosts, each with an optional port, that may have private addresses: `127.0.0.1:8080`,
            `search.intranet`. Set by an operator, never by a model.
        max_bytes: size of a body, as it comes and as it unpacks.
        total_s: the time of one call with all redirects, in seconds.
        connect_s, silence_s: the time to connect, and between two parts of an answer.
        user_agent: the header of this name.
        ca_file: certificates to trust beside the usual ones.
    """

    allow_private: tuple[str, ...] = ()
    max_bytes: int = 5_000_000
    total_s: float = 25.0
    connect_s: float = 5.0
    silence_s: float = 15.0
    user_agent: str = "noesium-stream"
    ca_file: str | None = None

    def __post_init__(self) -> None:
        for entry in self.allow_private:
            _parsed(entry)

    def may_be_private(self, target: Target) -> bool:
        """Whether this host, on this port, may have private addresses."""
        return _covered(target, self.allow_private)


def _covered(target: Target, entries: Collection[str]) -> bool:
    for entry in entries:
        allowed, has_port = _parsed(entry)
        if target.host == allowed.host and (not has_port or target.port == allowed.port):
            return True
    return False


def _parsed(entry: str) -> tuple[Target, bool]:
    try:
        if set(entry) & set("/?#@"):
            raise ToolInputError("It is more than a host.")
        target = parse_target(f"http://{entry}/")
    except ToolInputError:
        raise ConfigError(
            f"allow_private has {short(entry)}, which is no host.",
            hint='Write an address or a name, with a port if only this one: "127.0.0.1:8080".',
        ) from None
    host = f"[{target.host}]" if ":" in target.host else target.host
    return target, entry.strip().lower().removeprefix(host).startswith(":")
