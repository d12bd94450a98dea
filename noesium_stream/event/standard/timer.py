"""Durable timers of runs, and what watchdogs are told of time."""

from __future__ import annotations

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import AgentType, Identifier, Name, Whole


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


class WatchdogElapsed(StandardEvent, event_type="watchdog.elapsed"):
    """It is `now_ms`, and what began with the event `begun_id` was due at `due_ms`.

    It lies in the topic that the watchdog reads, under the same key. It may be there several times, and
    changes nothing if that has ended.
    """

    watchdog: AgentType
    begun_id: Identifier
    due_ms: Whole
    now_ms: Whole
