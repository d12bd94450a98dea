"""The fold of the registry's events about keys: only what an operator signed changes anything."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.errors import EventValidationError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import KeyRevoked, KeyTrusted
from noesium_stream.event.trust.trust_fold import trusted_after
from noesium_stream.event.trust.trusted_key import TrustedKey

PUBLIC = [Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32).public_key() for n in range(3)]
OPERATOR = TrustedKey("ops", PUBLIC[0])
ALICE = TrustedKey("alice-1", PUBLIC[1], frozenset({"alice"}))
KEYS = {"ops": OPERATOR, "alice-1": ALICE}


def after(event: DomainEvent, signed_by: TrustedKey | None = OPERATOR) -> TrustedKey:
    """The key that this event changes."""
    envelope = event.to_envelope(AgentRef("keys", "client"), None, None)
    return trusted_after(KEYS, envelope, signed_by, 5_000)


def trusted(**changes: Any) -> KeyTrusted:
    """An event that trusts a new key."""
    raw = base64.urlsafe_b64encode(PUBLIC[2].public_bytes_raw()).decode()
    return KeyTrusted(**{"key_id": "bob-1", "public_key": raw, "speaks_for": ["bob"], **changes})


def test_an_operator_trusts_a_key() -> None:
    key = after(trusted(not_after_ms=9_000))
    assert (key.key_id, key.speaks_for, key.not_after_ms) == ("bob-1", {"bob"}, 9_000)
    assert key.public_key.public_bytes_raw() == PUBLIC[2].public_bytes_raw()


def test_a_key_is_revoked_from_then_on_or_from_a_time() -> None:
    assert after(KeyRevoked(key_id="alice-1")).revoked_ms == 5_000
    assert after(KeyRevoked(key_id="alice-1", from_ms=100)).revoked_ms == 100


@pytest.mark.parametrize("signed_by", [None, ALICE])
@pytest.mark.parametrize("event", [trusted(), KeyRevoked(key_id="ops")], ids=["trust", "revoke"])
def test_nobody_else_changes_anything(event: DomainEvent, signed_by: TrustedKey | None) -> None:
    with pytest.raises(EventValidationError, match="only operators"):
        after(event, signed_by)


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (trusted(key_id="alice-1"), "a key 'alice-1' already"),
        (KeyRevoked(key_id="carol"), "no key 'carol'"),
        (trusted(key_id="a b"), "key id"),
        (trusted(public_key="?"), "payload"),
        (trusted(public_key="AAAA"), "32 bytes"),
        (trusted(public_key="A" * 43 + "="), "small order"),
        (trusted(speaks_for=[]), "1 to 1,000 names"),
        (trusted(speaks_for=["a\nb"]), "no name"),
    ],
)
def test_what_is_wrong_changes_nothing(event: DomainEvent, problem: str) -> None:
    with pytest.raises(EventValidationError, match=problem):
        after(event)


def test_a_revocation_is_never_taken_back() -> None:
    revoked = after(KeyRevoked(key_id="alice-1", from_ms=100))
    envelope = KeyRevoked(key_id="alice-1").to_envelope(AgentRef("keys", "client"), None, None)
    assert trusted_after({"alice-1": revoked}, envelope, OPERATOR, 5_000).revoked_ms == 100
