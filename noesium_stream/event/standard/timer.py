"""Durable timers of runs."""

from __future__ import annotations

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Whole


class TimerStarted(StandardEvent, event_type="timer.started"):
    """A step sleeps until `due_ms` (milliseconds since the epoch), whichever process owns it by then."""

    run_id: Identifier
    timer_id: Identifier
    node: Name
    due_ms: Whole


class TimerFired(StandardEvent, event_type="timer.fired"):
    """The timer is due by the owner's clock; from here on it is due for every execution."""

    run_id: Identifier
    timer_id: Identifier
    due_ms: Whole
