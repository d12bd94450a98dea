"""Public keys: which are refused, when they are valid, and for whom they speak."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.trusted_key import TrustedKey, check_key_id, checked_key, checked_principals

PRIME = 2**255 - 19
D = -121665 * pow(121666, -1, PRIME) % PRIME
PUBLIC = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()


def encoded(y: int, sign: int = 0) -> bytes:
    """A point as RFC 8032 writes it."""
    return (y | sign << 255).to_bytes(32, "little")


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sum of two points of edwards25519."""
    (x1, y1), (x2, y2) = one, other
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, PRIME)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, PRIME)
    return x % PRIME, y % PRIME


def points_of_small_order() -> set[tuple[int, int]]:
    """All points P with 8·P = 0: from curve points, times the order of the large subgroup."""
    order = 2**252 + 27742317777372353535851937790883648493
    found: set[tuple[int, int]] = set()
    y = 2
    while len(found) < 8:
        square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
        x = pow(square, (PRIME + 3) // 8, PRIME)
        if x * x % PRIME != square:
            x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
        if x * x % PRIME == square:
            point, power, scalar = (0, 1), (x, y), order
            while scalar:
                if scalar & 1:
                    point = added(point, power)
                power, scalar = added(power, power), scalar >> 1
            found.add(point)
        y += 1
    return found


def test_points_of_small_order_are_no_keys() -> None:
    points = points_of_small_order()
    assert len(points) == 8
    for x, y in points:
        for sign in (x & 1, 1 - (x & 1)):
            with pytest.raises(ConfigError, match="small order"):
                checked_key("weak", encoded(y, sign))


@pytest.mark.parametrize("y", [PRIME, PRIME + 1, 2**255 - 1])
def test_a_key_has_one_form(y: int) -> None:
    for sign in (0, 1):
        with pytest.raises(ConfigError, match="one allowed form"):
            checked_key("other", encoded(y, sign))


def test_a_sound_key_is_taken_in_both_forms() -> None:
    raw = PUBLIC.public_bytes_raw()
    assert checked_key("k", raw).public_bytes_raw() == checked_key("k", PUBLIC).public_bytes_raw() == raw
    with pytest.raises(ConfigError, match="32 bytes"):
        checked_key("k", raw[:-1])


def test_a_key_is_valid_from_and_until_and_not_once_it_is_revoked() -> None:
    key = TrustedKey("k", PUBLIC, not_before_ms=1_000, not_after_ms=3_000, revoked_ms=2_000)
    assert key.problem_at(1_999) is None
    assert "valid from 1970-01-01T00:00:01.000Z on" in (key.problem_at(999) or "")
    assert "revoked at 1970-01-01T00:00:02.000Z" in (key.problem_at(2_000) or "")
    later = TrustedKey("k", PUBLIC, not_after_ms=3_000)
    assert later.problem_at(2_999) is None
    assert "valid until" in (later.problem_at(3_000) or "")


def test_a_key_speaks_for_the_names_that_it_lists() -> None:
    key = TrustedKey("k", PUBLIC, frozenset({"alice", "agent:clerk", "role:auditor"}))
    assert key.speaks("alice")
    assert key.speaks("agent:clerk")
    assert not key.speaks("clerk")
    assert key.roles == {"auditor"}
    assert not key.speaks_for_everybody
    assert TrustedKey("k", PUBLIC).speaks("anybody")


@pytest.mark.parametrize("names", [[], [""], ["a\nb"], ["x" * 257], [f"n{n}" for n in range(1_001)]])
def test_names_have_a_form_and_a_bound(names: list[str]) -> None:
    with pytest.raises(ConfigError):
        checked_principals(names)


@pytest.mark.parametrize("key_id", ["", "a b", "ä", "x" * 257, "a\n"])
def test_key_ids_are_visible_ascii(key_id: str) -> None:
    with pytest.raises(ConfigError, match="key id"):
        check_key_id(key_id)
