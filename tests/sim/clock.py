"""The clock of a process in a simulated world: the loop's virtual time, a little off, and seeded ids."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

START_MS: Final = 1_767_225_600_000


class SimClock:
    """See `Clock`; `skew_ms` is how much it is ahead of the others."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: Random, skew_ms: int = 0) -> None:
        self._loop = loop
        self._chance = chance
        self._skew_ms = skew_ms

    def now_ms(self) -> int:
        return START_MS + self._skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def uuid7(self) -> str:
        value = self.now_ms() << 80 | 0x7 << 76 | self._chance.getrandbits(12) << 64
        text = f"{value | 0b10 << 62 | self._chance.getrandbits(62):032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self, size: int) -> str:
        return self._chance.randbytes(size).hex()

    def random(self) -> float:
        return self._chance.random()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))
