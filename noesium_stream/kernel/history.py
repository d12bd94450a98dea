"""What a run's journal says has happened: a fold over its records, read by steps on replay.

Records are keyed by things that a second execution finds again: a step by (superstep, task path), a
call or an effect by an id derived from the run, the step and the call's own content.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from noesium_stream.event.envelope import EventEnvelope

StepKey = tuple[int, str]

TERMINAL = frozenset({"run.completed", "run.failed", "run.cancelled", "command.expired"})


@dataclass(slots=True)
class RunHistory:
    """All that one run has on the log; `apply` takes its records in order."""

    started: EventEnvelope | None = None
    terminal: EventEnvelope | None = None
    cancel: EventEnvelope | None = None
    last_event_id: str | None = None
    records: int = 0
    entered: dict[StepKey, EventEnvelope] = field(default_factory=dict)
    completed: dict[StepKey, EventEnvelope] = field(default_factory=dict)
    failures: Counter[StepKey] = field(default_factory=Counter)
    last_failure: dict[StepKey, str] = field(default_factory=dict)
    invoked: dict[str, EventEnvelope] = field(default_factory=dict)
    answered: dict[str, EventEnvelope] = field(default_factory=dict)
    requested: dict[str, EventEnvelope] = field(default_factory=dict)
    outcomes: dict[str, EventEnvelope] = field(default_factory=dict)
    signals: dict[str, list[EventEnvelope]] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether it was started and has not ended."""
        return self.started is not None and self.terminal is None

    def apply(self, event: EventEnvelope) -> None:
        """Take the next record; the first terminal one wins (law 3)."""
        self.records += 1
        self.last_event_id = event.event_id
        if event.event_type in TERMINAL:
            self.terminal = self.terminal or event
            return
        handler = _HANDLERS.get(event.event_type)
        if handler is not None:
            handler(self, event, event.payload)


def _step(payload: dict[str, Any]) -> StepKey:
    return payload["step"], payload["task_path"]


def _started(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.started = history.started or event


def _cancel(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.cancel = history.cancel or event


def _entered(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.entered.setdefault(_step(payload), event)


def _completed(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.completed.setdefault(_step(payload), event)


def _failed(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.failures[_step(payload)] += 1
    history.last_failure[_step(payload)] = f"{payload['error_type']}: {payload['message']}"


def _invoked(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    # A provider's journal holds the same event as the copy of its command, before `run.started`: that is
    # no call of its own.
    started = history.started
    if started is not None and payload["reply_to"]["run_id"] == started.payload["run_id"]:
        history.invoked.setdefault(payload["reply_to"]["call_id"], event)


def _answered(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["call_id"] in history.invoked:
        history.answered.setdefault(payload["call_id"], event)


def _requested(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.requested[payload["effect_id"]] = event


def _outcome(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.outcomes[payload["effect_id"]] = event


def _signalled(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.signals.setdefault(payload["name"], []).append(event)


_HANDLERS = {
    "run.started": _started,
    "run.cancel.requested": _cancel,
    "run.signalled": _signalled,
    "kernel.node.entered": _entered,
    "kernel.node.completed": _completed,
    "kernel.node.failed": _failed,
    "capability.invoked": _invoked,
    "capability.completed": _answered,
    "effect.requested": _requested,
    "effect.completed": _outcome,
    "effect.failed": _outcome,
    "effect.outcome.unknown": _outcome,
}
