"""Durable timers of runs."""

from __future__ import annotations

from noesium_stream.event.domain_event import DomainEvent


class TimerStarted(DomainEvent, event_type="timer.started"):
    """A step sleeps until `due_ms` (milliseconds since the epoch), whichever process owns it by then."""

    run_id: str
    timer_id: str
    node: str
    due_ms: int


class TimerFired(DomainEvent, event_type="timer.fired"):
    """The timer is due by the owner's clock; from here on it is due for every execution."""

    run_id: str
    timer_id: str
    due_ms: int
