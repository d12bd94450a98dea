"""Instants by what a commit says: `before:run.cancelled`, `after:timer.fired`.

A process that is armed with one stands still with the commit that has an event of this type ready and nothing
of it sent, or with all of it on the log and nobody told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noesium_stream.log.kafka.writer import KafkaWriter
from noesium_stream.log.port import Outgoing
from noesium_stream.log.sqlite.writer import SqliteWriter
from tests.chaos.points_sqlite import Striking


def is_of_commit(point: str) -> bool:
    """Whether a point is named like that."""
    return point.startswith(("before:", "after:"))


def arm_commit(point: str, strike: Striking) -> None:
    """Let this process stand still there."""
    when, _, event_type = point.partition(":")
    for writer in (KafkaWriter, SqliteWriter):
        _arm(writer, when, event_type, strike)


def _arm(writer: Any, when: str, event_type: str, strike: Striking) -> None:
    commit = writer.commit

    async def stopped(self: Any, outgoing: Sequence[Outgoing]) -> Any:
        due = any(one.envelope.event_type == event_type for one in outgoing) and strike.due()
        if due and when == "before":
            strike.here()
        found = await commit(self, outgoing)
        if due and when == "after":
            strike.here()
        return found

    writer.commit = stopped
