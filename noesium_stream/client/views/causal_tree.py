"""Causal tree of a run, a pure function over event envelopes; `noesium show` draws it.

The same envelopes give the same tree in any order of topics. Records of one run are taken in the given order;
between runs only `causation_id`, run ids and call ids count, never clocks. A copy of an event (same
`event_id`) changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.client.views.tree_questions import Allowed, AskedQuestion, asked_question
from noesium_stream.client.views.waits import Wait, fold_event, waits_of
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import COMMANDS, caller_of, input_of, output_of
from noesium_stream.event.rules.run_life import ENDINGS, RunLife, evolve, executor_of
from noesium_stream.projection.builtin.execution import OF_RUNS
from noesium_stream.projection.builtin.execution_state import RunState

_DIGITS: Final = 10
"""No superstep has a number of so many digits."""

_PLUMBING: Final = (
    *("run.", "kernel.", "capability.", "tool.invocation.", "task.", "effect."),
    *("partition.", "command.", "agent.", "model.invoked", "model.completed"),
)


@dataclass(slots=True)
class Effect:
    """A journaled effect: a call to the outside world."""

    name: str
    started_ms: int
    duration_ms: int | None = None
    status: str = "running"
    error: str | None = None


@dataclass(slots=True)
class Call:
    """A call of another agent; `run` is the provider's run, None before it has started.

    `agent_type` and `version` are empty as long as no provider was chosen. `reason` says why no worker of the
    provider can take it up yet.
    """

    call_id: str
    capability_id: str
    version: str
    agent_type: str
    invoked_ms: int
    answered_ms: int | None = None
    error: str | None = None
    output: Any = None
    run: RunTree | None = None
    reason: str | None = None

    @property
    def duration_ms(self) -> int | None:
        """Time from the call to its answer, in milliseconds; None: there is no answer yet."""
        return None if self.answered_ms is None else max(0, self.answered_ms - self.invoked_ms)


@dataclass(slots=True)
class StepTree:
    """One task of one superstep: a node's execution, with its effects, calls and questions.

    `argument` is what a `Send` gave it, in one short line.
    """

    node: str
    step: int
    task_path: str
    entered_ms: int
    attempt: int = 1
    status: str = "running"
    duration_ms: int | None = None
    error: str | None = None
    where: str | None = None
    delta: Any = None
    events: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    argument: str | None = None
    questions: list[AskedQuestion] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Takeover:
    """A takeover by another process, `after_ms` after the run had started."""

    previous: str
    instance: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class Move:
    """A migration to another version of the graph, from superstep `step` on."""

    source: str
    target: str
    step: int


@dataclass(slots=True)
class RunTree(RunLife):
    """A run with its steps, in the order in which they were entered.

    `status` is `requested` (not started yet), `deferred` (no worker can take it up: see `reason`), `running`,
    `waiting` (each open task waits: see `waits_for`), `stranded` (`reason` says why), `compensating` (its
    effects are being compensated), `completed`, `failed`, `cancelled` or `expired`. Times are those of the
    producers' clocks (ms), None if unknown. `effects` undo
    the run as a whole; all others are in their steps.
    """

    run_id: str
    agent_type: str = ""
    agent_version: str = ""
    status: str = "requested"
    input: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: str | None = None
    where: str | None = None
    reason: str | None = None
    requested_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    duration_ms: int | None = None
    steps: list[StepTree] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    records: int = 0
    waits_for: tuple[Wait, ...] = ()

    @property
    def calls(self) -> Iterator[Call]:
        """Yield the calls of all steps."""
        return (call for step in self.steps for call in step.calls)

    @property
    def not_taken_up(self) -> Iterator[Call]:
        """Yield the open calls, of this run and of those below it, whose provider has not begun."""
        waiting = [self]
        while waiting:
            run = waiting.pop()
            for call in run.calls:
                if call.run is not None:
                    waiting.append(call.run)
                elif call.answered_ms is None and call.agent_type:
                    yield call

    @property
    def waits_below(self) -> Iterator[tuple[RunTree, Wait]]:
        """Yield what the open runs below this one wait for, other than answers of further runs."""
        waiting = [self]
        while waiting:
            run = waiting.pop()
            if run is not self:
                yield from ((run, wait) for wait in run.waits_for if wait.kind != "call")
            waiting += [call.run for call in run.calls if call.run is not None][::-1]


def causal_tree(
    run_id: str, envelopes: Iterable[EventEnvelope], allowed: Mapping[str, Allowed] | None = None
) -> RunTree:
    """Build the tree below `run_id` from the journal events of the run and of the runs that it has called.

    `envelopes` may contain events of other runs, in any interleaving; those of one run are in journal order.
    `allowed` says by event id what allowed an answer to a question.
    """
    by_run: dict[str, list[EventEnvelope]] = {}
    for envelope in envelopes:
        for owner in _runs_of(envelope):
            by_run.setdefault(owner, []).append(envelope)
    return _grow(run_id, by_run, allowed or {}, frozenset())


def _runs_of(envelope: EventEnvelope) -> set[str]:
    """Return the runs that an event concerns: a call and its answer concern two."""
    payload = envelope.payload
    named = {payload.get("run_id"), payload.get("caller_run_id"), envelope.partition_key}
    return {name for name in named if isinstance(name, str)}


def _grow(
    run_id: str,
    by_run: dict[str, list[EventEnvelope]],
    allowed: Mapping[str, Allowed],
    above: frozenset[str],
) -> RunTree:
    growth = _Growth(run_id, allowed)
    seen: set[str] = set()
    for envelope in by_run.get(run_id, ()):
        if envelope.event_id not in seen:
            seen.add(envelope.event_id)
            growth.apply(envelope)
    growth.settle()
    for call in growth.run.calls:
        # A run cannot be its own ancestor; a log with such a cycle must not hang the reader.
        if call.call_id in by_run and call.call_id not in above | {run_id}:
            child = _grow(call.call_id, by_run, allowed, above | {run_id})
            if child.started_ms is not None:
                call.run = child
    return growth.run


class _Growth:
    """Folds one run's events into its `RunTree`."""

    def __init__(self, run_id: str, allowed: Mapping[str, Allowed]) -> None:
        self.run = RunTree(run_id)
        self._allowed = allowed
        self._questions: dict[str, AskedQuestion] = {}
        self._by_entered: dict[str, StepTree] = {}
        self._by_key: dict[tuple[int, str], StepTree] = {}
        self._calls: dict[str, Call] = {}
        self._effects: dict[str, Effect] = {}
        self._step_of_effect: dict[str, StepTree] = {}
        self._instance = ""
        self._state: RunState | None = None

    def settle(self) -> None:
        """Set whether the run waits, and for what."""
        if self.run.status == "running" and self._state is not None:
            self.run.waits_for = waits_of(self._state)
            self.run.status = "waiting" if self.run.waits_for else "running"

    def apply(self, event: EventEnvelope) -> None:
        self.run.records += 1
        if event.event_type in OF_RUNS:
            self._state = fold_event(self._state, event, self.run.run_id)
        counts = evolve(self.run, event)
        self._follow_owner(event)
        handler = getattr(self, f"_on_{event.event_type.replace('.', '_')}", None)
        if counts and event.event_type in COMMANDS:
            self.run.input = input_of(event.payload)
        elif handler is not None:
            handler(event, event.payload)
        elif counts and event.event_type in ENDINGS:
            self._end(event.payload)
        elif not event.event_type.startswith(_PLUMBING):
            step = self._step_of(event)
            if step is not None:
                step.events.append(event.event_type)

    def _follow_owner(self, event: EventEnvelope) -> None:
        run, instance = self.run, executor_of(self.run, event)
        if run.started_ms is None or instance is None:
            return
        if self._instance and instance != self._instance:
            after = max(0, event.timestamp_ms - run.started_ms)
            run.takeovers.append(Takeover(self._instance, instance, after))
        self._instance = instance

    def _step_of(self, event: EventEnvelope) -> StepTree | None:
        """Find the step that caused an event; by default the last one that was entered."""
        found = self._by_entered.get(event.causation_id or "")
        return found or (self.run.steps[-1] if self.run.steps else None)

    def _step_at(self, payload: dict[str, Any]) -> StepTree | None:
        return self._by_key.get((payload["step"], payload["task_path"]))

    def _on_run_migrated(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        source, target = payload["from_graph"]["version"], payload["to_graph"]["version"]
        self.run.moves.append(Move(source, target, payload["step"]))

    def _on_run_segment_started(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.segments.append(payload["step"])

    def _on_run_signalled(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.signals.append(payload["name"])

    def _end(self, payload: dict[str, Any]) -> None:
        run = self.run
        run.error, run.where = run.error or payload.get("reason"), payload.get("where")
        elapsed = None if run.started_ms is None else max(0, (run.ended_ms or 0) - run.started_ms)
        run.duration_ms = payload.get("duration_ms", elapsed)

    def _on_kernel_node_entered(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        key = (payload["step"], payload["task_path"])
        step = self._by_key.get(key)
        if step is None:
            step = StepTree(payload["node"], payload["step"], payload["task_path"], event.timestamp_ms)
            step.argument = payload.get("argument")
            self._by_key[key] = step
            self.run.steps.append(step)
        step.attempt = max(step.attempt, payload["attempt"])
        self._by_entered[event.event_id] = step

    def _on_kernel_node_retried(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        step = self._step_at(payload)
        if step is not None:
            step.attempt, step.status, step.error, step.where = payload["attempt"], "running", None, None

    def _on_kernel_node_completed(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        step = self._step_at(payload)
        if step is not None and step.status != "completed":
            step.status, step.error, step.where = "completed", None, None
            step.duration_ms, step.delta = payload["duration_ms"], payload.get("delta")

    def _on_kernel_node_failed(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        step = self._step_at(payload)
        if step is not None and step.status != "completed":
            step.status, step.duration_ms = "failed", payload["duration_ms"]
            step.error, step.where = f"{payload['error_type']}: {payload['message']}", payload.get("where")

    def _on_capability_requested(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        if payload["call_id"] not in self._calls:
            self._add_call(event, payload["call_id"], payload["capability_id"])

    def _on_capability_invoked(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        call_id = payload["run_id"]
        if caller_of(payload) != self.run.run_id:
            return  # the command of this run
        call = self._calls.get(call_id)
        if call is None:
            call = self._add_call(event, call_id, payload["capability_id"])
        if not call.agent_type:  # else it is a repeat
            call.version, call.agent_type = payload.get("version", ""), payload.get("target_agent_type", "")
            call.invoked_ms = event.timestamp_ms

    def _add_call(self, event: EventEnvelope, call_id: str, capability_id: str) -> Call:
        call = self._calls[call_id] = Call(call_id, capability_id, "", "", event.timestamp_ms)
        step = self._step_of(event)
        if step is not None:
            step.calls.append(call)
        return call

    def _on_capability_completed(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        call = self._calls.get(payload["call_id"])
        if call is not None and call.answered_ms is None:
            call.answered_ms = event.timestamp_ms
            call.output, call.error = output_of(payload), payload.get("error")

    _on_task_requested = _on_capability_invoked
    _on_task_completed = _on_capability_completed
    _on_tool_invocation_requested = _on_capability_invoked
    _on_tool_invocation_completed = _on_capability_completed

    def _on_capability_unresolved(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self._end_call(event, payload, "nobody offers it")

    def _on_capability_refused(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        call = self._calls.get(payload["call_id"])
        if call is not None and call.answered_ms is not None:
            call.error = call.error or payload["error"]  # its result is not what the capability promises
        else:
            self._end_call(event, payload, payload["error"])

    def _on_capability_expired(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self._end_call(event, payload, "its deadline has passed")

    def _end_call(self, event: EventEnvelope, payload: dict[str, Any], error: str) -> None:
        """End a call without an answer; one that nobody was asked for is shown as well."""
        call_id = payload["call_id"]
        call = self._calls.get(call_id) or self._add_call(event, call_id, payload["capability_id"])
        if call.answered_ms is None:
            call.answered_ms, call.error = event.timestamp_ms, error

    def _on_approval_requested(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        step = self._step_of(event)
        if step is not None and payload["approval_id"] not in self._questions:
            question = self._questions[payload["approval_id"]] = asked_question(event)
            step.questions.append(question)

    def _on_approval_answered(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        question = self._questions.get(payload["approval_id"])
        if question is not None:
            question.answer(event, self._allowed.get(event.event_id))

    def _on_approval_expired(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        question = self._questions.get(payload["approval_id"])
        if question is not None:
            question.close("expired", event.timestamp_ms)

    def _on_effect_requested(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        if payload["effect_id"] in self._effects:
            return
        effect = self._effects[payload["effect_id"]] = Effect(payload["name"], event.timestamp_ms)
        undone = payload.get("compensates")
        if undone == self.run.run_id:
            self.run.effects.append(effect)
            return
        step = self._step_of(event) if undone is None else self._step_undone(undone)
        if step is not None:
            step.effects.append(effect)
            self._step_of_effect[payload["effect_id"]] = step

    def _step_undone(self, what: str) -> StepTree | None:
        """Find the step that is undone, or that had this effect; by default the last one."""
        step, _, path = what.partition("/")
        node = self._by_key.get((int(step), path)) if step.isdecimal() and len(step) < _DIGITS else None
        last = self.run.steps[-1] if self.run.steps else None
        return self._step_of_effect.get(what) or node or last

    def _on_effect_completed(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self._settle(payload, "completed", None)

    def _on_effect_failed(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self._settle(payload, "failed", f"{payload['error_type']}: {payload['message']}")

    def _on_effect_outcome_unknown(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self._settle(payload, "unknown", payload["reason"])

    def _on_effect_resolved(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        effect = self._effects.get(payload["effect_id"])
        if effect is not None and effect.status in ("unknown", "failed"):
            said = f"{payload['decision']}, says {payload['resolved_by']}"
            effect.error = said if payload.get("reason") is None else f"{said}: {payload['reason']}"
            # A failed call is repeated under another id; its own entry stays as it is.
            again = "running" if effect.status == "unknown" else "failed"
            status = {"result": "completed", "retry": again, "fail": "failed"}
            effect.status = status[payload["decision"]]

    def _settle(self, payload: dict[str, Any], status: str, error: str | None) -> None:
        effect = self._effects.get(payload["effect_id"])
        # The outcome of a call may be reported after it was recorded as unknown.
        if effect is not None and effect.status in ("running", "unknown"):
            effect.status, effect.error = status, error
            effect.duration_ms = payload.get("duration_ms")
