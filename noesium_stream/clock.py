"""Time, identifiers and randomness: the only module that reads them (law 6).

All other code takes a `Clock`, so that a test or a replay can supply its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import secrets
import time
from collections import deque
from datetime import UTC, datetime
from typing import Final, Protocol
from uuid import UUID

from uuid_utils import uuid7 as _uuid7

from noesium_stream.durations import Duration, in_seconds


class Clock(Protocol):
    """Source of time, ids and randomness."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds of a clock that never runs backwards; only differences are meaningful."""

    def uuid7(self) -> str:
        """A new UUIDv7 (RFC 9562), lower case, 36 characters."""

    def token(self, size: int) -> str:
        """`size` random bytes as lower-case hex."""

    def random(self) -> float:
        """A number in [0, 1)."""

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of this clock."""


class SystemClock:
    """The machine's clock and generators."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()

    def uuid7(self) -> str:
        """See `Clock.uuid7`."""
        return str(_uuid7())

    def token(self, size: int) -> str:
        """See `Clock.token`."""
        try:
            return _TOKENS[size].popleft()
        except (KeyError, IndexError):
            return _more_tokens(size)

    def random(self) -> float:
        """See `Clock.random`."""
        return random.random()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        await asyncio.sleep(seconds)


_AT_ONCE: Final = 256
_TOKENS: dict[int, deque[str]] = {}
"""Unused tokens, by size.

Many are read from the operating system at a time: each system call lets the interpreter switch to a waiting
thread, which took 5 % of the time of a worker's event loop.
"""

if hasattr(os, "register_at_fork"):  # the parent process hands out the same tokens
    os.register_at_fork(after_in_child=_TOKENS.clear)


def _more_tokens(size: int) -> str:
    length, text = 2 * size, secrets.token_hex(size * _AT_ONCE)
    first, *rest = (text[at : at + length] for at in range(0, len(text), length))
    _TOKENS.setdefault(size, deque()).extend(rest)
    return first


class VirtualClock:
    """A clock that moves only on request (or when a task sleeps); seeded and therefore repeatable.

    `sleep` advances the time at once and yields to the event loop: a month passes in microseconds.
    """

    def __init__(self, start_ms: int = 1_767_225_600_000, seed: int = 0) -> None:
        self._now_ms = start_ms
        self._elapsed_s = 0.0
        self._random = random.Random(seed)

    def advance(self, duration: Duration) -> None:
        """Move the time forward by `duration` (not negative): a `timedelta`, or seconds."""
        seconds = in_seconds(duration, "duration")
        if seconds < 0:
            raise ValueError("time does not run backwards")
        self._elapsed_s += seconds
        self._now_ms += round(seconds * 1000)

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._now_ms

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self._elapsed_s

    def uuid7(self) -> str:
        """See `Clock.uuid7`; the 74 free bits come from the seed."""
        value = self._now_ms << 80 | 0x7 << 76 | self._random.getrandbits(12) << 64
        value |= 0b10 << 62 | self._random.getrandbits(62)
        return str(UUID(int=value))

    def token(self, size: int) -> str:
        """See `Clock.token`."""
        return self._random.randbytes(size).hex()

    def random(self) -> float:
        """See `Clock.random`."""
        return self._random.random()

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        self.advance(max(seconds, 0.0))
        await asyncio.sleep(0)


def derived_id(*parts: str) -> str:
    """A deterministic id for these parts: a UUIDv8 (RFC 9562 §5.8) over their SHA-256.

    Parts are length-prefixed before hashing, so that ("a", "bc") and ("ab", "c") differ. Used for run ids
    with an idempotency key and for children of a run, so that a repeated command has the same id.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    value = int.from_bytes(digest.digest()[:16], "big")
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(UUID(int=value))


def to_datetime(ms: int) -> datetime:
    """Milliseconds since the epoch as an aware UTC datetime."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def to_ms(moment: datetime) -> int:
    """An aware datetime as milliseconds since the epoch, rounded down."""
    if moment.tzinfo is None:
        raise ValueError("a timestamp needs a time zone")
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def to_rfc3339(ms: int) -> str:
    """Milliseconds since the epoch as `2026-03-01T12:00:00.000Z`."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"
