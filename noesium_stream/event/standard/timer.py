"""Durable timers of runs."""

from __future__ import annotations

from noesium_stream.event.domain import DomainEvent


class TimerStarted(DomainEvent, event_type="timer.started"):
    """A step sleeps until `due_ms` (milliseconds since the epoch), whichever process has it by then."""

    run_id: str
    timer_id: str
    node: str
    due_ms: int


class TimerFired(DomainEvent, event_type="timer.fired"):
    """The time has come by the owner's clock; from here on it has come for every execution."""

    run_id: str
    timer_id: str
    due_ms: int
