"""Effects in tests: a world outside that counts, and what a run records."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import aclosing
from typing import Any

from noesium_stream.client import Run
from noesium_stream.event.envelope import EventEnvelope
from tests.support.reading import PATIENCE_S


class World:
    """What agents act on. `hangs` and `fails`: how many of the first calls of a name do that."""

    def __init__(self, *, hangs: dict[str, int] | None = None, fails: dict[str, int] | None = None) -> None:
        self.hangs = dict(hangs or {})
        self.fails = dict(fails or {})
        self.calls = Counter[str]()
        self.keys = defaultdict[str, set[str]](set)
        self.log: list[str] = []

    async def act(self, name: str, *, idempotency_key: str) -> str:
        """Count a call, and say how many there were."""
        self.calls[name] += 1
        self.keys[name].add(idempotency_key)
        self.log.append(name)
        number = self.calls[name]
        if number <= self.hangs.get(name, 0):
            await asyncio.Event().wait()
        if number <= self.fails.get(name, 0):
            raise ConnectionError(f"{name} is told to fail")
        return f"{name} {number}"


async def reached(run: Run, event_type: str, number: int = 1, **payload: Any) -> EventEnvelope:
    """The run's `number`th event of this type, with these values in its payload, as soon as it is there."""
    async with asyncio.timeout(PATIENCE_S), aclosing(run.events()) as events:
        async for event in events:
            if event.event_type == event_type and payload.items() <= event.payload.items():
                number -= 1
                if number == 0:
                    return event
    raise AssertionError(f"the run has ended without {event_type} {payload}")


async def journal_of(run: Run) -> tuple[list[EventEnvelope], list[int]]:
    """A run's events and their numbers, in order."""
    records = [record async for record in run.records(follow=False)]
    return [record.unchecked for record in records], [
        int(record.header("noesium_seq") or -1) for record in records
    ]
