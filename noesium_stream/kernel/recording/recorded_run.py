"""A run's journal as a value: for replay, for storage in a file, for comparison with another run.

A history file is JSON Lines: a head that names the code for the replay, then one event per line in the order
of the journal, with all of its content, so that files of old releases can be replayed for good:

    {"format": "noesium-history/1", "graph": "agents.researcher:Researcher", "agent_type": "researcher"}
    {"received": true, "event": {"event_type": "run.requested", ...}}

`received` marks copies of events that others sent; the run's owner wrote all others. Events that a fork
shares come before them, as `{"shared": true, "event": ...}`.

The canonical form contains the run's actions without ids, times and durations, which no two runs share. Two
runs with the same actions have equal canonical histories, whatever crashed and whichever child ended first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.errors import CheckpointError, EventValidationError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS, COMMANDS, input_of
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.rules.tool_calls import is_told
from noesium_stream.kernel.run_history import StepKey
from noesium_stream.log.headers import SOURCE
from noesium_stream.log.record import Record

FORMAT: Final = "noesium-history/1"
_KERNEL: Final = (
    "run.",
    "kernel.",
    "effect.",
    "capability.",
    "tool.invocation.",
    "command.",
    "approval.",
    "timer.",
    "partition.",
    "task.",
)
ENDS_OF_CALLS: Final = frozenset({"capability.unresolved", "capability.refused", "capability.expired"})
"""Types of the events with which a step records that a call of an agent has ended without an answer."""
_CALLS: Final = frozenset({"effect.requested", *CALLS, "approval.requested", "timer.started"})
_OUTCOMES: Final = frozenset(
    {
        "effect.completed",
        "effect.failed",
        "effect.outcome.unknown",
        "effect.reported",
        "effect.resolved",
        *ANSWERS,
        *ENDS_OF_CALLS,
        "approval.answered",
        "approval.expired",
        "timer.fired",
    }
)
_IDS: Final = ("effect_id", "approval_id", "timer_id", "call_id")


_PLACED: Final = ("kernel.node.failed", "run.compensation.started", "run.failed")


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One record of a run's journal; `received`: a copy of another sender's event."""

    event: EventEnvelope
    received: bool = False


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """The journal's records of one run, in order. `graph` is a reference `MODULE:NAME`, if known.

    `shared` is a fork's part of its ancestors' histories (see `noesium_stream.kernel.recording.fork`).
    """

    events: tuple[RecordedEvent, ...]
    graph: str | None = None
    shared: tuple[EventEnvelope, ...] = ()

    @property
    def command(self) -> EventEnvelope:
        """The command that created the run."""
        return next(item.event for item in self.events if item.event.event_type in COMMANDS)

    @property
    def started(self) -> EventEnvelope:
        """`run.started`."""
        return next(item.event for item in self.events if item.event.event_type == "run.started")

    @property
    def terminal(self) -> EventEnvelope | None:
        """The first terminal event; None while the run is open."""
        return next((item.event for item in self.events if item.event.event_type in ENDINGS), None)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return str(self.started.payload["run_id"])

    @property
    def agent_type(self) -> str:
        """The agent type that ran it."""
        return str(self.started.payload["agent_type"])

    @property
    def input(self) -> dict[str, Any]:
        """The run's input."""
        return input_of(self.command.payload)


def recorded_run(
    records: Iterable[Record], graph: str | None = None, shared: tuple[EventEnvelope, ...] = ()
) -> RecordedRun:
    """The run in a journal's records.

    Raises:
        CheckpointError: the command or `run.started` is missing.
        CorruptRecordError: a record cannot be decoded.
    """
    events = tuple(
        RecordedEvent(record.unchecked, record.header(SOURCE) is not None)
        for record in records
        if not record.event_type.startswith("partition.")
    )
    return _checked(RecordedRun(events, graph, shared), "the journal")


def _checked(run: RecordedRun, where: str) -> RecordedRun:
    types = {item.event.event_type for item in run.events}
    if "run.started" not in types or not types.intersection(COMMANDS):
        raise CheckpointError(
            f"{where} does not hold the run from its beginning.",
            hint="A run can be replayed from when a worker has taken it up.",
        )
    return run


def dump_history(run: RecordedRun) -> str:
    """The run as the text of a history file.

    Source locations of failures are left out: paths differ between machines, and the same run is the same
    text.
    """
    head = {"format": FORMAT, "graph": run.graph, "agent_type": run.agent_type}
    lines = [
        head,
        *({"shared": True, "event": _portable(event)} for event in run.shared),
        *({"received": item.received, "event": _portable(item.event)} for item in run.events),
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _portable(event: EventEnvelope) -> dict[str, Any]:
    found = event.to_dict()
    if event.event_type in _PLACED and event.signature is None:
        found["payload"] = {k: v for k, v in event.payload.items() if k not in ("where", "traceback")}
    return found


def load_history(text: str, name: str = "the history") -> RecordedRun:
    """The run of a history file.

    Raises:
        CheckpointError: it is not a history, or its format is unknown here.
        EventValidationError: an event is malformed.
    """
    lines = text.splitlines()
    try:
        head, *rows = [json.loads(line) for line in lines]
        known = head["format"]
        graph = head.get("graph")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{name} is no recorded history: {error}.") from error
    if known != FORMAT:
        raise CheckpointError(
            f"{name} is of the format {known}, and {FORMAT} is known here.", hint="Use a newer noesium."
        )
    try:
        shared = tuple(EventEnvelope.from_dict(row["event"]) for row in rows if row.get("shared"))
        events = tuple(
            RecordedEvent(EventEnvelope.from_dict(row["event"]), bool(row["received"]))
            for row in rows
            if not row.get("shared")
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise EventValidationError("event", f"a line of {name} is no event: {error}") from error
    return _checked(RecordedRun(events, graph, shared), name)


@dataclass(frozen=True, slots=True)
class CanonicalStep:
    """The actions of one step. Calls are sorted by content: under `gather` their order means nothing."""

    step: int
    path: str
    node: str
    failures: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    completed: bool = False
    delta: Any = None


@dataclass(frozen=True, slots=True)
class CanonicalHistory:
    """The actions of a run, without ids and times; steps in the order of superstep and task path."""

    input: dict[str, Any]
    steps: list[CanonicalStep]
    signals: list[dict[str, Any]]
    outcome: dict[str, Any] | None


def canonical_history(run: RecordedRun) -> CanonicalHistory:
    """The canonical form of a run."""
    fold = _Fold()
    for event in (*run.shared, *(item.event for item in run.events)):
        fold.take(event)
    steps, terminal = fold.finished(), run.terminal
    outcome = None if terminal is None else {"type": terminal.event_type, **_outcome(terminal.payload)}
    if outcome is not None and any(outcome.get("message") in step.failures for step in steps):
        # After a crash the run ends with the journal's record of the node's error, and not with the error.
        outcome["error_type"], _, outcome["message"] = outcome["message"].partition(": ")
    return CanonicalHistory(input=run.input, steps=steps, signals=fold.signals, outcome=outcome)


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same; 1 and 1.0 are, 1 and true are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def call_key(payload: Mapping[str, Any]) -> str | None:
    """The id shared by a call and its results; None for an event of no call."""
    for name in _IDS:
        if isinstance(payload.get(name), str):
            return str(payload[name])
    reply_to = payload.get("reply_to")
    return str(reply_to["call_id"]) if isinstance(reply_to, Mapping) else None


def call_content(event_type: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The caller's own choices in a call: request and recipient, without ids and times."""
    if event_type == "capability.invoked":
        names: tuple[str, ...] = ("capability_id", "version", "target_agent_type", "input")
    elif event_type == "tool.invocation.requested":
        names = ("capability_id", "version", "target_agent_type", "arguments")
    elif event_type == "task.requested":
        names = ("capability_id", "payload")
    elif event_type in ("capability.requested", "capability.unresolved"):
        names = ("capability_id", "version_range")
    elif event_type == "effect.requested":
        names = ("name", "effect_class", "arguments", "compensation")
    else:
        gone = {"run_id", "fingerprint", "idempotency_key", "node", *_IDS}
        names = tuple(name for name in payload if name not in gone and not name.endswith("_ms"))
    return {name: payload.get(name) for name in names if payload.get(name) is not None}


def is_call(event_type: str) -> bool:
    """Whether an event of this type requests something from outside the node."""
    return event_type in _CALLS


class _Fold:
    def __init__(self) -> None:
        self.signals: list[dict[str, Any]] = []
        self._steps: dict[StepKey, CanonicalStep] = {}
        self._homes: dict[str, StepKey] = {}
        self._calls: dict[str, dict[str, Any]] = {}
        self._started = False

    def take(self, event: EventEnvelope) -> None:
        """Add the next record."""
        kind, payload = event.event_type, event.payload
        if kind == "run.started":
            self._started = True
        elif kind == "run.signalled":
            self.signals.append({"name": payload["name"], "value": payload.get("value")})
        elif kind.startswith("kernel.node."):
            self._node(event, kind, payload)
        elif self._started and kind in _OUTCOMES:
            call = self._calls.get(call_key(payload) or "")
            if call is not None:
                call["outcomes"].append({"type": kind, **_outcome(payload)})
        elif self._started:
            self._of_step(event, kind, payload)

    def _node(self, event: EventEnvelope, kind: str, payload: dict[str, Any]) -> None:
        key: StepKey = payload["step"], payload["task_path"]
        self._homes[event.event_id] = key
        step = self._steps.setdefault(key, CanonicalStep(*key, payload["node"]))
        if kind == "kernel.node.failed":
            step.failures.append(f"{payload['error_type']}: {payload['message']}")
        elif kind == "kernel.node.completed" and not step.completed:
            self._steps[key] = CanonicalStep(
                *key, step.node, step.failures, step.calls, step.events, True, payload.get("delta")
            )

    def _of_step(self, event: EventEnvelope, kind: str, payload: dict[str, Any]) -> None:
        home = self._homes.get(event.causation_id or "")
        if home is None:
            return
        step = self._steps[home]
        if is_call(kind):
            key = call_key(payload) or event.event_id
            if key not in self._calls:
                self._calls[key] = {"type": kind, **call_content(kind, payload), "outcomes": []}
                step.calls.append(self._calls[key])
        elif not kind.startswith(_KERNEL) and not is_told(kind, payload):
            step.events.append({"type": kind, "payload": payload})

    def finished(self) -> list[CanonicalStep]:
        """All steps in order."""
        for step in self._steps.values():
            step.calls.sort(key=canonical_json)
        return [self._steps[key] for key in sorted(self._steps)]


def _outcome(payload: Mapping[str, Any]) -> dict[str, Any]:
    names = ("result", "output", "error", "error_type", "message", "reason", "value", "approved", "decision")
    return {name: payload[name] for name in names if payload.get(name) is not None}
