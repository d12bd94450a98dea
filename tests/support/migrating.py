"""A projection and the version that takes its state over."""

from __future__ import annotations

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog, Position
from noesium_stream.projection.base import BaseProjection
from tests.support.events import counted


class Fees(BaseProjection[int]):
    """Each event costs 1; a negative number cannot be taken, and 0 ends the account."""

    name = "fees"
    topics = ("events.*",)

    def initial_state(self) -> int:
        return 0

    def key(self, event: EventEnvelope) -> str:
        return str(event.partition_key)

    def apply(self, state: int, event: EventEnvelope) -> int | None:
        if event.payload["n"] < 0:
            raise ValueError("negative")
        return state + 1 if event.payload["n"] else None


class FeesByHundred(BaseProjection[dict[str, int]]):
    """From its beginning on each event costs 100, and what was paid before is told apart."""

    name = "fees"
    version = 2
    topics = ("events.*",)
    previous_version = Fees

    def initial_state(self) -> dict[str, int]:
        return {"old": 0, "new": 0}

    def key(self, event: EventEnvelope) -> str:
        return str(event.partition_key)

    def apply(self, state: dict[str, int], event: EventEnvelope) -> dict[str, int] | None:
        return {**state, "new": state["new"] + 100} if event.payload["n"] else None

    def migrate(self, key: str, state: int) -> dict[str, int] | None:
        return None if key == "closed" else {"old": state, "new": 0}


async def add_fees(log: EventLog, *keys: str, n: int = 1) -> list[Position]:
    """An event of each key."""
    return await log.append([counted(n, key) for key in keys])
