"""Keys that a log trusts: listed, trusted and revoked in its registry, by an operator's signature."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.standard import KeyRevoked, KeyTrusted
from noesium_stream.event.trust.speaking import CLIENT
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.port import EventLog
from noesium_stream.log.trust import RegistryTrust, trust_of

_OPERATOR = "Sign with an operator's key, one that speaks for `*`: NOESIUM_SIGNING_KEY=FILE."


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key that a log trusts, or did.

    Attributes:
        key: the key.
        said_at: offset of the last event about it in the registry; None: it is in the file of public keys.
        status: `trusted`, `revoked`, `expired` or `not yet`, at the time of the listing.
    """

    key: TrustedKey
    said_at: int | None
    status: str


async def list_keys(log: EventLog, clock: Clock) -> list[ListedKey]:
    """List the keys of the root and of the registry, by id.

    Raises:
        ConfigError: no public keys are configured.
        LogUnavailableError
    """
    trust = trust_of(log)
    keys = await trust.refresh()
    now_ms = clock.now_ms()
    return [
        ListedKey(keys[key_id], trust.said_at.get(key_id), _status(keys[key_id], now_ms))
        for key_id in sorted(keys)
    ]


async def trust_keys(log: EventLog, clock: Clock, keys: Iterable[TrustedKey]) -> list[TrustedKey]:
    """Let a log trust these keys; return those that it did not trust before.

    Raises:
        ConfigError: this process does not sign with an operator's key, or an id names another key already.
        LogUnavailableError, CommitUnknownError
    """
    trust = trust_of(log)
    known = await trust.refresh()
    _require_operator(log, known, clock)
    new = []
    for key in keys:
        other = known.get(key.key_id)
        if other is None:
            new.append(key)
        elif _content(other) != _content(key) or other.revoked_ms is not None:
            raise ConfigError(
                f"The log has a key {short(key.key_id)} already, with other content.",
                hint="An id names one key for good: give the new key another id.",
            )
    await _append(log, clock, [_said(key) for key in new])
    await _require_taken(trust, new)
    return new


async def revoke_key(
    log: EventLog, clock: Clock, key_id: str, from_ms: int | None = None, reason: str | None = None
) -> None:
    """Let a log trust a key no more: from a time on, by the log's time of appends, or from now on.

    Raises:
        ConfigError: this process does not sign with an operator's key, or there is no such key.
        LogUnavailableError, CommitUnknownError
    """
    known = await trust_of(log).refresh()
    _require_operator(log, known, clock)
    if key_id not in known:
        raise ConfigError(f"The log has no key {short(key_id)}.", hint="See: noesium keys list")
    await _append(log, clock, [KeyRevoked(key_id=key_id, from_ms=from_ms, reason=reason)])


def _require_operator(log: EventLog, known: dict[str, TrustedKey], clock: Clock) -> None:
    signer = getattr(log.decoder, "record_signer", None)
    if signer is None:
        raise ConfigError("This process does not sign.", hint=_OPERATOR)
    key = known.get(signer.key_id)
    if key is None or not key.speaks_for_everybody:
        raise ConfigError(f"The key {short(signer.key_id)} is not an operator's.", hint=_OPERATOR)
    problem = key.problem_at(clock.now_ms())
    if problem is not None:
        raise ConfigError(f"It cannot be said with this key: {problem}.", hint=_OPERATOR)


async def _require_taken(trust: RegistryTrust, keys: list[TrustedKey]) -> None:
    found = await trust.refresh()
    for key in keys:
        if key.key_id not in found or _content(found[key.key_id]) != _content(key):
            raise ConfigError(
                f"The log does not trust {short(key.key_id)}: "
                + (next(reversed(trust.refused.values()), "another key has its id")),
            )


async def _append(log: EventLog, clock: Clock, events: list[DomainEvent]) -> None:
    producer = AgentRef("keys", CLIENT, "local", clock.uuid7())
    await log.append([root_event(event, producer, clock) for event in events])


def _said(key: TrustedKey) -> DomainEvent:
    return KeyTrusted(
        key_id=key.key_id,
        public_key=base64.urlsafe_b64encode(key.public_key.public_bytes_raw()).decode(),
        speaks_for=sorted(key.speaks_for),
        not_before_ms=key.not_before_ms,
        not_after_ms=key.not_after_ms,
    )


def _content(key: TrustedKey) -> tuple[bytes, frozenset[str], int | None, int | None]:
    return key.public_key.public_bytes_raw(), key.speaks_for, key.not_before_ms, key.not_after_ms


def _status(key: TrustedKey, now_ms: int) -> str:
    if key.revoked_ms is not None and now_ms >= key.revoked_ms:
        return "revoked"
    if key.not_before_ms is not None and now_ms < key.not_before_ms:
        return "not yet"
    return "expired" if key.not_after_ms is not None and now_ms >= key.not_after_ms else "trusted"
