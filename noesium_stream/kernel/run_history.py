"""The history of a run: a fold over its journal's records, which steps read on replay.

Records are keyed by values that a second execution computes again: a step by (superstep, task path), a call
or an effect by an id derived from the run, the step and the call's own content.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS, caller_of
from noesium_stream.event.rules.approval_answers import is_complete
from noesium_stream.event.rules.attributes import with_attributes
from noesium_stream.event.rules.budget import Spending, call_of_run
from noesium_stream.event.rules.effect_ledger import EFFECT_HANDLERS, EffectLedger
from noesium_stream.event.rules.goal_tree import GoalTree
from noesium_stream.event.rules.model_calls import ModelCalls
from noesium_stream.event.rules.provenance import Provenance
from noesium_stream.event.rules.run_life import ENDINGS, RunLife, evolve
from noesium_stream.event.rules.tool_calls import ToolCalls, is_told
from noesium_stream.kernel.segment_state import begin

StepKey = tuple[int, str]

_MARK_BYTES: Final = 12

SIGNAL_AWAITED: Final = "kernel.signal.awaited"
"""The type of a step's note that it waits for a signal; a replay neither repeats nor compares it."""

_STRANDING: Final = frozenset({"run.parked", "run.resumed"})


@dataclass(slots=True)
class RunHistory(EffectLedger, RunLife):
    """All records of one run; `apply` takes them in order.

    Attributes:
        subcalls: calls of subgraphs, by the id of the calling step and their number: hashes of the input of
            the first nodes of a call, by the path of the node.
        awaited: the steps' waits for signals, by the id of the wait.
        heard: marks of signals, in order, which tell a repeated one: hashes of its producer's agent id with
            its event id, and with its idempotency key.
        taken: of the signals of a name, so many are behind those that completed steps have taken.
        dropped: so many signals of a name came before those in `signals`: in earlier segments, or in the run
            that this one is a fork of.
        carried_ids: event ids of the signals that the run's segment began with.
        segment: the number of the run's segment; the first is 1.
        calls_before: calls of other runs in earlier segments.
        notes: the working memory that the segment began with, by key.
        spent: numbers of the calls that failed attempts of a step have made; the next attempt makes its own.
        answers: the accepted answers of each question, in order.
        requested_by: the name in which the run was asked for; None: it is not known here.
        cancelled: the requests to end runs that it has called, by run id.
        undoing: the part that each compensation undoes, by the id in the task paths of its graph's nodes.
        stop: why it is to end without a result: a cancellation request, or a passed deadline; the first
            counts.
        unanswered: of `invoked`, the calls that still wait for their answer.
        sought: `capability.requested` by call id.
        unresolved, refused, expired: ends of calls that the run itself has recorded, by call id.
        remembered: what the run has written to memory, in order.
        attributes: its search attributes by name.
        goals: the same of its goals, in this segment.
        goals_before: the tree of goals that the segment began with.
        forgiven: last failures of nodes (event ids) after which a compensating graph was begun again.
        migrated: the last `run.migrated`: the graph that it names begins there, with the state in it.
        pinned: the graph that the run continues with, as `GraphRef` has it.
        tools: what the kernel has told of the run's tool calls.
        models: the same of its model calls.
        spending: what it has spent of its budget.
        provenance: where the run's data comes from.
        renames: renamings by moves: up to which superstep, and new names of nodes by old ones.
    """

    run_id: str = ""
    agent_type: str = ""
    agent_version: str | None = None
    status: str = "requested"
    reason: str | None = None
    error: str | None = None
    result: Any = None
    requested_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
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
    spent: dict[str, frozenset[str]] = field(default_factory=dict)
    checkpoints: set[int] = field(default_factory=set)
    last_checkpoint: str | None = None
    invoked: dict[str, EventEnvelope] = field(default_factory=dict)
    answered: dict[str, EventEnvelope] = field(default_factory=dict)
    cancelled: dict[str, EventEnvelope] = field(default_factory=dict)
    unanswered: dict[str, EventEnvelope] = field(default_factory=dict)
    sought: dict[str, EventEnvelope] = field(default_factory=dict)
    unresolved: dict[str, EventEnvelope] = field(default_factory=dict)
    refused: dict[str, EventEnvelope] = field(default_factory=dict)
    expired: dict[str, EventEnvelope] = field(default_factory=dict)
    calls: dict[str, dict[str, EventEnvelope]] = field(default_factory=dict)
    signals: dict[str, list[EventEnvelope]] = field(default_factory=dict)
    awaited: dict[str, EventEnvelope] = field(default_factory=dict)
    heard: dict[str, None] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    carried_ids: set[str] = field(default_factory=set)
    segment: int = 1
    calls_before: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    approvals: dict[str, EventEnvelope] = field(default_factory=dict)
    answers: dict[str, list[EventEnvelope]] = field(default_factory=dict)
    closed: dict[str, EventEnvelope] = field(default_factory=dict)
    requested_by: str | None = None
    timers: dict[str, EventEnvelope] = field(default_factory=dict)
    fired: dict[str, EventEnvelope] = field(default_factory=dict)
    undoing: dict[str, str] = field(default_factory=dict)
    tools: ToolCalls = field(default_factory=ToolCalls)
    models: ModelCalls = field(default_factory=ModelCalls)
    spending: Spending = field(default_factory=Spending)
    provenance: Provenance = field(default_factory=Provenance)
    forgiven: set[str] = field(default_factory=set)
    remembered: list[EventEnvelope] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    goals: list[EventEnvelope] = field(default_factory=list)
    goals_before: GoalTree = field(default_factory=GoalTree)

    @property
    def open(self) -> bool:
        """Whether it was started and has not ended."""
        return self.started is not None and self.terminal is None

    @property
    def stranded(self) -> str | None:
        """Why the owner could not continue it; None if it could, or can again."""
        return self.reason if self.status == "stranded" else None

    @property
    def deadline_ms(self) -> int | None:
        """The run's deadline in milliseconds since the epoch; None: no deadline."""
        return self.started.payload.get("deadline_ms") if self.started is not None else None

    def apply(self, event: EventEnvelope) -> None:
        """Apply the next record."""
        self.records += 1
        counts = evolve(self, event)
        if event.event_type in _STRANDING:
            return  # not an action of the run itself: later events keep the cause that they would have had
        self.provenance.apply(event)
        if is_told(event.event_type, event.payload):
            self.tools.apply(event)
            self.models.apply(event)
            self.spending.apply(event)
            return
        self.last_event_id = event.event_id
        if event.event_type in ENDINGS:
            self.terminal = event if counts else self.terminal
            return
        if event.event_type.startswith("memory."):
            self.remembered.append(event)
        if event.event_type.startswith("goal."):
            self.goals.append(event)
        self.spending.apply(event)
        handler = _HANDLERS.get(event.event_type)
        if handler is not None:
            handler(self, event, event.payload)
        if event.event_type == "effect.requested":
            _call(self, event.payload["fingerprint"], event)
            if self.compensation is not None and event.causation_id == self.compensation.event_id:
                self._undo(event.payload["fingerprint"], event.payload["compensates"])

    def has_heard(self, signal: EventEnvelope) -> bool:
        """Whether a signal repeats one that the run has accepted, as `Run.signal` says."""
        return any(mark in self.heard for mark in _marks(signal))

    @property
    def calls_made(self) -> int:
        """How many other runs it has called."""
        return self.calls_before + len(self.invoked)

    def notes_now(self) -> dict[str, Any]:
        """The run's working memory after all completed steps, by key (see `memory/ephemeral.py`)."""
        notes, scope = dict(self.notes), f"run:{self.run_id}"
        entered = {event.event_id: superstep(key) for key, event in self.entered.items()}
        written = [
            (entered[event.causation_id], *_place_of(event.idempotency_key or ""), event)
            for event in self.remembered
            if event.causation_id in entered and event.payload.get("scope") == scope
        ]
        for *_, event in sorted(written, key=lambda one: one[:3]):
            if event.event_type == "memory.written":
                notes[event.payload["key"]] = event.payload.get("value")
            else:
                notes.pop(event.payload.get("key", ""), None)
        return notes

    def undoes(self, key: StepKey) -> str | None:
        """The part that is undone by the compensation graph of this step; None for other steps."""
        return self.undoing.get(undo_id(key) or "")

    def calls_under_way(self) -> list[str]:
        """Begun effects without an outcome; a compensation graph is represented by its steps instead."""
        graphs = {f"{UNDO}{base}" for base in self.undoing} & self.subcalls.keys()
        return [
            effect_id
            for effect_id, requested in self.requested.items()
            if effect_id not in self.outcomes and f"{UNDO}{requested.payload['fingerprint']}" not in graphs
        ]

    def _undo(self, base: str, what: str) -> None:
        """Begin a compensation, or begin it again: failed nodes of its graph get another attempt."""
        self.undoing[base] = what
        self.forgiven.update(event.event_id for key, event in self.failed.items() if undo_id(key) == base)

    def withdraw_end(self) -> None:
        """Go on after a result that was refused: its end does not count."""
        self.terminal, self.status, self.ended_ms = None, "running", None

    def forget(self, event_ids: Container[str]) -> None:
        """Drop events that were staged and then refused by the log: they did not happen."""
        if self.migrated is not None and self.migrated.event_id in event_ids:
            # The graph is not executed here any more: the next owner reads the log.
            self.migrated, self.pinned = None, None
        told = self.tools.invoked, self.tools.over
        for found in (self.entered, self.completed, self.requested, self.outcomes, self.awaited, *told):
            _drop(found, event_ids)
        for of_call in self._of_calls():
            _drop(of_call, event_ids)
        for calls in self.calls.values():
            _drop(calls, event_ids)
        self.undoable = [event for event in self.undoable if event.event_id not in event_ids]
        self.remembered = [event for event in self.remembered if event.event_id not in event_ids]
        self.goals = [event for event in self.goals if event.event_id not in event_ids]

    def _of_calls(self) -> tuple[dict[str, EventEnvelope], ...]:
        ends = self.unresolved, self.refused, self.expired
        return self.invoked, self.unanswered, self.sought, self.cancelled, *ends


def _drop(found: dict[Any, EventEnvelope], event_ids: Container[str]) -> None:
    for key in [key for key, event in found.items() if event.event_id in event_ids]:
        del found[key]


UNDO: Final = "undo:"
_UNDO_ID = re.compile(rf"(?:\d+:)*{UNDO}([^:|]+)")


def undo_id(key: StepKey) -> str | None:
    """The id of the compensation whose graph has this step: `undo:ID|0|pull:node`, or nested in one."""
    found = _UNDO_ID.fullmatch(key[1].partition("|")[0])
    return found[1] if found else None


def nested_in(key: StepKey) -> str | None:
    """The step that runs the subgraph of this step; None for a step of the run's own graph."""
    outer, bar, _ = key[1].rpartition("|")
    return outer.rpartition("|")[0] if bar else None


def _call(history: RunHistory, fingerprint: str, event: EventEnvelope) -> None:
    """Record a step's request, under the event of its node's entry."""
    if event.causation_id is not None:
        history.calls.setdefault(event.causation_id, {}).setdefault(fingerprint, event)


def step_id(key: StepKey) -> str:
    """A step as a text, which is the prefix of the task paths of nodes that it calls."""
    return f"{key[0]}:{key[1]}"


def superstep(key: StepKey) -> int:
    """The superstep of the run's own graph, also for a step within a subgraph."""
    number = key[0]
    if "|" in key[1]:
        for part in key[1].split(":"):
            if not part.isdigit():
                break
            number = int(part)
    return number


def _step(payload: dict[str, Any]) -> StepKey:
    return payload["step"], payload["task_path"]


def _attributes(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.attributes = with_attributes(history.attributes, payload["attributes"])


def _requested(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if history.started is None:  # else it is a command of the run's own
        history.attributes = with_attributes({}, payload.get("attributes"))


def _started(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if history.started is None:
        history.started = event
        history.pinned = payload["graph"]
        for name, taken in ((payload.get("forked_from") or {}).get("taken") or {}).items():
            history.taken[name] = history.dropped[name] = taken


def _migrated(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    own = history.started is None or payload["run_id"] == history.started.payload["run_id"]
    latest = history.migrated
    if not own and latest is not None and latest.payload["step"] > payload["step"]:
        return  # of the run that this one is a fork of, and before its own
    history.migrated = event
    if own:
        history.pinned = payload.get("to_graph") or payload["graph"]
    step = payload["step"]
    history.renames.append((step, payload.get("renamed") or {}))
    # A node that was only entered, under a name that the new graph does not run there, never began.
    kept = {f"pull:{name}" for name in payload["next"]}
    for key in [key for key in history.entered if key[0] == step and nested_in(key) is None]:
        if key[1] not in kept and key not in history.completed:
            del history.entered[key]


def _stop(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    own = history.started is None or payload["run_id"] == history.started.payload["run_id"]
    if own:
        history.stop = history.stop or event
    else:
        history.cancelled.setdefault(payload["run_id"], event)


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
    for name, taken in (payload.get("taken") or {}).items():
        history.taken[name] = max(history.taken.get(name, 0), taken)
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
        # A compensation continues where it failed, also within a graph that the node runs.
        within = f"{step_id(key)}|"
        history.forgiven.update(
            each.event_id for inner, each in history.failed.items() if inner[1].startswith(within)
        )
    elif step_id(key) in history.subcalls:
        history.spent[step_id(key)] = frozenset(history.subcalls[step_id(key)])


def _invoked(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    # A provider's journal holds the same event as the copy of its command, before `run.started`: that is not
    # a call of its own.
    started = history.started
    if started is not None and caller_of(payload) == started.payload["run_id"]:
        call_id = payload["reply_to"]["call_id"]
        if call_id not in history.invoked:
            history.invoked[call_id] = history.unanswered[call_id] = event
            call_of_run(history.spending, payload)
        if payload.get("attempt", 1) == 1 and event.causation_id is not None:
            # In the place of its request; another provider for the same request is no call of the node's own.
            history.calls.setdefault(event.causation_id, {})[call_id] = event


def _sought(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.sought.setdefault(payload["call_id"], event)
    _call(history, payload["call_id"], event)


def _unresolved(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.unresolved.setdefault(payload["call_id"], event)


def _refused(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.refused.setdefault(payload["call_id"], event)


def _expired(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.expired.setdefault(payload["call_id"], event)
    history.unanswered.pop(payload["call_id"], None)


def _answered(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if payload["call_id"] in history.invoked:
        history.answered.setdefault(payload["call_id"], event)
        history.unanswered.pop(payload["call_id"], None)


def _signalled(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    # A repetition in the journal counts as well: an earlier release has accepted it, and the run heard it.
    if event.event_id in history.carried_ids:
        return  # the beginning of the segment overtook it on its way to the log
    history.signals.setdefault(payload["name"], []).append(event)
    history.heard.update(dict.fromkeys(_marks(event)))


def _awaited(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.awaited.setdefault(payload["wait_id"], event)


def _marks(signal: EventEnvelope) -> list[str]:
    agent_id, key = signal.producer.agent_id, signal.idempotency_key
    marks = [_mark(agent_id, "event", signal.event_id)]
    return marks if key is None else [*marks, _mark(agent_id, "key", key)]


def _mark(*parts: str) -> str:
    text = "\0".join(parts).encode(errors="replace")
    return hashlib.blake2b(text, digest_size=_MARK_BYTES).hexdigest()


def _place_of(event_key: str) -> tuple[str, int]:
    """The task and the number within it, from `Place.event_key`."""
    task, _, number = event_key.rpartition("/")
    return task, int(number) if number.isdigit() else 0


def _segment(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    if history.started is not None and payload["run_id"] == history.started.payload["run_id"]:
        begin(history, event)
    else:
        _migrated(history, event, payload)  # of the run that this one is a fork of: the state alone


def _asked(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.approvals.setdefault(payload["approval_id"], event)
    _call(history, payload["approval_id"], event)


def _approved(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    approval_id = payload["approval_id"]
    asked, answers = history.approvals.get(approval_id), history.answers.setdefault(approval_id, [])
    answers.append(event)
    if asked is None or is_complete(asked.payload, [answer.payload for answer in answers]):
        _closed(history, event, payload)


def _closed(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    # The last answer that was needed, or the expiry of the deadline: the first one counts.
    history.closed.setdefault(payload["approval_id"], event)


def _timer(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.timers.setdefault(payload["timer_id"], event)
    _call(history, payload["timer_id"], event)


def _fired(history: RunHistory, event: EventEnvelope, payload: dict[str, Any]) -> None:
    history.fired.setdefault(payload["timer_id"], event)


_HANDLERS: dict[str, Callable[[RunHistory, EventEnvelope, dict[str, Any]], None]] = {
    "run.requested": _requested,
    "attributes.set": _attributes,
    "run.started": _started,
    "run.migrated": _migrated,
    "run.segment.started": _segment,
    "run.cancel.requested": _stop,
    "run.deadline.passed": _stop,
    "run.signalled": _signalled,
    SIGNAL_AWAITED: _awaited,
    "kernel.node.entered": _entered,
    "kernel.node.completed": _completed,
    "kernel.node.failed": _failed,
    "kernel.checkpoint.created": _checkpoint,
    "capability.requested": _sought,
    "capability.unresolved": _unresolved,
    "capability.refused": _refused,
    "capability.expired": _expired,
    **dict.fromkeys(CALLS, _invoked),
    **dict.fromkeys(ANSWERS, _answered),
    "approval.requested": _asked,
    "approval.answered": _approved,
    "approval.expired": _closed,
    "timer.started": _timer,
    "timer.fired": _fired,
    **EFFECT_HANDLERS,
}
