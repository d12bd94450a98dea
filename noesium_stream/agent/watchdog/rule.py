"""What a watchdog makes of an event: a pure function of the row of its key."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import WatchdogElapsed
from noesium_stream.log.headers import LATEST_MS

ELAPSED: Final = WatchdogElapsed.TYPE


@dataclass(frozen=True, slots=True)
class Overdue:
    """What has begun and not ended in time.

    Attributes:
        key: the key of the event that began it.
        event_id: that event's id; empty: nothing has begun (the row of a key without one).
        event_type: its type.
        payload: its payload.
        begun_ms: its time, in milliseconds since the epoch.
        due_ms: until when an end was due.
    """

    key: str = ""
    event_id: str = ""
    event_type: str = ""
    payload: dict[str, Any] = field(default_factory=dict)
    begun_ms: int = 0
    due_ms: int = 0


NOTHING: Final = Overdue()


@dataclass(frozen=True, slots=True)
class Rule:
    """`begins`: types of events that begin; `ends`: that end; `within_ms`: the time between."""

    watchdog: str
    begins: Collection[str]
    ends: Collection[str]
    within_ms: int


def judge(rule: Rule, open_one: Overdue, event: EventEnvelope) -> tuple[Overdue, Overdue | None]:
    """The row after an event (`NOTHING`: nothing is open), and what was overdue by it.

    An end counts by its own time: a late one does not undo that it is late, whichever process was away.
    A beginning while something is open changes nothing, unless its type also ends.
    """
    kind = event.event_type
    if kind == ELAPSED:
        payload = event.payload
        meant = payload["watchdog"] == rule.watchdog and payload["begun_id"] == open_one.event_id
        if meant and open_one.event_id and payload["now_ms"] >= open_one.due_ms:
            return NOTHING, open_one
        return open_one, None
    overdue = None
    if kind in rule.ends and open_one.event_id:
        overdue = open_one if event.timestamp_ms > open_one.due_ms else None
        open_one = NOTHING
    if kind in rule.begins and not open_one.event_id:
        begun_ms = min(max(event.timestamp_ms, 0), LATEST_MS)
        due_ms = min(begun_ms + rule.within_ms, LATEST_MS)
        key = event.partition_key or ""
        open_one = Overdue(key, event.event_id, kind, event.payload, begun_ms, due_ms)
    return open_one, overdue
