"""What a run's journal says has happened: a fold over its records, read by steps on replay.

Records are keyed by things that a second execution finds again: a step by (superstep, task path), a
call or an effect by an id derived from the run, the step and the call's own content.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.calls import ANSWERS, CALLS, caller_of
from noesium_stream.event.effects import EFFECT_HANDLERS, EffectLedger
from noesium_stream.event.envelope import EventEnvelope

StepKey = tuple[int, str]

TERMINAL = frozenset({"run.completed", "run.failed", "run.cancelled", "command.expired"})


_PARKING: Final = frozenset({"run.parked", "run.resumed"})


@dataclass(slots=True)
class RunHistory(EffectLedger):
    """All that one run has on the log; `apply` takes its records in order.

    Attributes:
        subcalls: calls of subgraphs, by the id of the step that makes them and their number: hashes of the
            input by the path of a node, of those that a call begins with.
        spent: numbers of the calls that failed attempts of a step have made; the next one makes its own.
        undoing: what each compensation undoes, by the id that the task paths of its graph's nodes carry.
        stop: why it is to end without a result: a request to cancel it, or that its deadline has passed; the
            first counts.
        parked: why the owner could not go on with it; None where it could, or has again.
        forgiven: last failures of nodes (event ids) after which a compensating graph was begun again.
        migrated: the last `run.migrated`: the graph that it names begins there, with the state in it.
        pinned: the graph that the run goes on with, as `GraphRef` has it.
        renames: what moves have renamed: up to which superstep, and new names of nodes by old ones.
    """

    started: EventEnvelope | None = None
    migrated: EventEnvelope | None = None
    pinned: dict[str, Any] | None = None
    renames: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    terminal: EventEnvelope | None = None
    stop: EventEnvelope | None = None
    last_event_id: str | None = None
    records: int = 0
    entered: dict[StepKey, EventEnvelope] = field(default_factory=dict)
    completed: dict[StepKey, EventEnvelope] = field(default_factory=dict)
    failures: Counter[StepKey] = field(default_factory=Counter)
    failed: dict[StepKey, EventEnvelope] = field(default_factory=dict)
    steps: dict[int, list[EventEnvelope]] = field(default_factory=dict)
    subcalls: dict[str, dict[str, dict[str, str | None]]] = field(default_factory=dict)
    parked: str | None = None
    spent: dict[str, frozenset[str]] = field(default_factory=dict)
    checkpoints: set[int] = field(default_factory=set)
    last_checkpoint: str | None = None
    invoked: dict[str, EventEnvelope] = field(default_factory=dict)
    answered: dict[str, EventEnvelope] = field(default_factory=dict)
    calls: dict[str, dict[str, EventEnvelope]] = field(default_factory=dict)
    signals: dict[str, list[EventEnvelope]] = field(default_factory=dict)
    approvals: dict[str, EventEnvelope] = field(default_factory=dict)
    closed: dict[str, EventEnvelope] = field(default_factory=dict)
    timers: dict[str, EventEnvelope] = field(default_factory=dict)
    fired: dict[str, EventEnvelope] = field(default_factory=dict)
    undoing: dict[str, str] = field(default_factory=dict)
    forgiven: set[str] = field(default_factory=set)

    @property
    def open(self) -> bool:
        """Whether it was started and has not ended."""
        return self.started is not None and self.terminal is None

    @property
    def deadline_ms(self) -> int | None:
        """When it is to have ended, in milliseconds since the epoch; None: it may take its time."""
        return self.started.payload.get("deadline_ms") if self.started is not None else None

    def apply(self, event: EventEnvelope) -> None:
        """Take the next record; the first terminal one wins (law 3)."""
        self.records += 1
        if event.event_type in _PARKING:
            # Nothing that the run itself does: what follows has the cause that it would have had.
            if self.started is not None and self.started.payload["run_id"] == event.payload["run_id"]:
                self.parked = event.payload.get("reason")  # else of the run that this one is a fork of
            return
        self.last_event_id = event.event_id
        if event.event_type in TERMINAL:
            self.terminal = self.terminal or event
            return
        handler = _HANDLERS.get(event.event_type)
        if handler is not None:
            handler(self, event, event.payload)
        if event.event_type == "effect.requested":
            _call(self, event.payload["fingerprint"], event)
            if self.compensation is not None and event.causation_id == self.compensation.event_id:
                self._undo(event.payload["fingerprint"], event.payload["compensates"])

    def undoes(self, key: StepKey) -> str | None:
        """What the compensation undoes whose graph this step is of; None for a step of the run's own."""
        return self.undoing.get(undo_id(key) or "")

    def calls_under_way(self) -> list[str]:
        """Effects that were begun, without an outcome yet; a graph that undoes is in its steps."""
        graphs = {f"{UNDO}{base}" for base in self.undoing} & self.subcalls.keys()
        return [
            effect_id
            for effect_id, requested in self.requested.items()
            if effect_id not in self.outcomes and f"{UNDO}{requested.payload['fingerprint']}" not in graphs
        ]

    def _undo(self, base: str, what: str) -> None:
        """A compensation begins, or again: nodes of its graph that had failed get another attempt."""
        self.undoing[base] = what
        self.forgiven.update(event.event_id for key, event in self.failed.items() if undo_id(key) == base)

    def forget(self, event_ids: Container[str]) -> None:
        """Drop what was staged and then refused by the log: it did not happen."""
        if self.migrated is not None and self.migrated.event_id in event_ids:
            # Nothing of the graph is executed here any more: the next owner reads the log.
            self.migrated, self.pinned = None, None
        for found in (self.entered, self.completed, self.requested, self.outcomes, self.invoked):
            _drop(found, event_ids)
        for calls in self.calls.values():
            _drop(calls, event_ids)
        self.undoable = [event for event in self.undoable if event.event_id not in event_ids]


def _drop(found: dict[Any, EventEnvelope], event_ids: Container[str]) -> None:
    for key in [key for key, event in found.items() if event.event_id in event_ids]:
        del found[key]


UNDO: Final = "undo:"
_UNDO_ID = re.compile(rf"(?:\d+:)*{UNDO}([^:|]+)")


def undo_id(key: StepKey) -> str | None:
    """The id of the compensation whose graph this step is of: `undo:ID|0|pull:node`, or nested in such."""
    found = _UNDO_ID.fullmatch(key[1].partition("|")[0])
    return found[1] if found else None


def nested_in(key: StepKey) -> str | None:
    """The step that runs the subgraph which this step belongs to; None for a step of the run's own graph."""
    outer, bar, _ = key[1].rpartition("|")
    return outer.rpartition("|")[0] if bar else None


def _call(history: RunHistory, fingerprint: str, event: EventEnvelope) -> None:
    """Note what a step has asked for, under the event that says that its node was entered."""
    if event.causation_id is not None:
        history.calls.setdefault(event.causation_id, {}).setdefault(fingerprint, event)


def step_id(key: StepKey) -> str:
    """A step as a text, as the task paths of the nodes that it calls begin."""
    return f"{key[0]}:{key[1]}"


def _step(payload: dict[str, Any]) -> StepKey:
    return payload["step"], payload["task_path"]


def _started(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if history.started is None:
        history.started = event
        history.pinned = payload["graph"]


def _migrated(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    own = history.started is None or payload["run_id"] == history.started.payload["run_id"]
    latest = history.migrated
    if not own and latest is not None and latest.payload["step"] > payload["step"]:
        return  # of the run that this one is a fork of, and before its own
    history.migrated = event
    history.parked = None
    if own:
        history.pinned = payload["to_graph"]
    step = payload["step"]
    history.renames.append((step, payload.get("renamed") or {}))
    # What had just been entered under a name that the new graph does not run there was never begun.
    kept = {f"pull:{name}" for name in payload["next"]}
    for key in [key for key in history.entered if key[0] == step and nested_in(key) is None]:
        if key[1] not in kept and key not in history.completed:
            del history.entered[key]


def _stop(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.stop = history.stop or event


def _entered(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    key = _step(payload)
    history.entered.setdefault(key, event)
    outer = nested_in(key)
    if outer is not None:
        number, _, path = key[1].removeprefix(f"{outer}|").partition("|")
        nodes = history.subcalls.setdefault(outer, {}).setdefault(number, {})
        nodes.setdefault(path, payload.get("input_hash"))


def _completed(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    key = _step(payload)
    if key in history.completed:
        return
    history.completed[key] = event
    entered = history.entered.get(key)
    if entered is not None and entered.payload.get("compensation") is not None:
        history.undoable.append(event)
    if nested_in(key) is None:
        history.steps.setdefault(key[0], []).append(event)


def _checkpoint(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.checkpoints.add(payload["step"])
    history.last_checkpoint = payload["checkpoint_id"]


def _failed(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    key = _step(payload)
    history.failures[key] += 1
    history.failed[key] = event
    if undo_id(key) is not None:
        # What undoes goes on where it failed, also within a graph that the node runs.
        within = f"{step_id(key)}|"
        history.forgiven.update(
            each.event_id for inner, each in history.failed.items() if inner[1].startswith(within)
        )
    elif step_id(key) in history.subcalls:
        history.spent[step_id(key)] = frozenset(history.subcalls[step_id(key)])


def _invoked(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    # A provider's journal holds the same event as the copy of its command, before `run.started`: that is
    # no call of its own.
    started = history.started
    if started is not None and caller_of(payload) == started.payload["run_id"]:
        history.invoked.setdefault(payload["reply_to"]["call_id"], event)
        _call(history, payload["reply_to"]["call_id"], event)


def _answered(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["call_id"] in history.invoked:
        history.answered.setdefault(payload["call_id"], event)


def _signalled(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.signals.setdefault(payload["name"], []).append(event)


def _asked(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.approvals.setdefault(payload["approval_id"], event)
    _call(history, payload["approval_id"], event)


def _closed(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    # An answer or the passing of the deadline: the first one counts.
    history.closed.setdefault(payload["approval_id"], event)


def _timer(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.timers.setdefault(payload["timer_id"], event)
    _call(history, payload["timer_id"], event)


def _fired(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.fired.setdefault(payload["timer_id"], event)


_HANDLERS: dict[str, Callable[[RunHistory, EventEnvelope, dict[str, Any]], None]] = {
    "run.started": _started,
    "run.migrated": _migrated,
    "run.cancel.requested": _stop,
    "run.deadline.passed": _stop,
    "run.signalled": _signalled,
    "kernel.node.entered": _entered,
    "kernel.node.completed": _completed,
    "kernel.node.failed": _failed,
    "kernel.checkpoint.created": _checkpoint,
    **dict.fromkeys(CALLS, _invoked),
    **dict.fromkeys(ANSWERS, _answered),
    "approval.requested": _asked,
    "approval.answered": _closed,
    "approval.expired": _closed,
    "timer.started": _timer,
    "timer.fired": _fired,
    **EFFECT_HANDLERS,
}
