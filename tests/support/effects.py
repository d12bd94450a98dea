"""Effects in tests: a world outside that counts, and waiting for what a run records."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from noesium_stream.client import Run
from noesium_stream.event.envelope import EventEnvelope


async def reached(run: Run, event_type: str, number: int = 1, **payload: Any) -> EventEnvelope:
    """The run's `number`th event of this type, with these values in its payload, as soon as it is there."""
    async with asyncio.timeout(20), aclosing(run.events()) as events:
        async for event in events:
            if event.event_type == event_type and payload.items() <= event.payload.items():
                number -= 1
                if number == 0:
                    return event
    raise AssertionError(f"the run has ended without {event_type} {payload}")
