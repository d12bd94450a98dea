"""The causal tree of a run: what `noesium show` draws, a pure function over event envelopes.

The same envelopes give the same tree in any order of topics: a run's own records are taken in the order
given, between runs only `causation_id`, run ids and call ids count, never clocks. A copy of an event
(same `event_id`) changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from noesium_stream.event.calls import CALLS, caller_of, input_of, output_of
from noesium_stream.event.envelope import EventEnvelope

_ENDINGS: Final = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "command.expired": "expired",
}
_PLUMBING: Final = (
    *("run.", "kernel.", "capability.", "tool.invocation.", "effect."),
    *("partition.", "command.", "agent."),
)
_OWNER_ALONE: Final = ("kernel.", "effect.", "run.")


@dataclass(slots=True)
class Effect:
    """A journaled call of something outside."""

    name: str
    started_ms: int
    duration_ms: int | None = None
    status: str = "running"
    error: str | None = None


@dataclass(slots=True)
class Call:
    """A delegation; `run` is what the provider made of it, None while it has not begun."""

    call_id: str
    capability_id: str
    version: str
    agent_type: str
    invoked_ms: int
    answered_ms: int | None = None
    error: str | None = None
    output: Any = None
    run: RunTree | None = None

    @property
    def duration_ms(self) -> int | None:
        """From the question to its answer; None while there is none."""
        return None if self.answered_ms is None else max(0, self.answered_ms - self.invoked_ms)


@dataclass(slots=True)
class StepTree:
    """One task of one superstep: a node's execution, with what it did."""

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


@dataclass(frozen=True, slots=True)
class Takeover:
    """Another process went on with the run; `after_ms` since it had started."""

    previous: str
    instance: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class Move:
    """The run went on with another version of its graph, from superstep `step` on."""

    source: str
    target: str
    step: int


@dataclass(slots=True)
class RunTree:
    """A run: who, what, when, how long; its steps in the order in which they were entered.

    `status` is `requested` (not taken up yet), `running`, `parked` (`reason` says why), `compensating` (what
    it did is being undone), `completed`, `failed`, `cancelled` or `expired`; times are the producers' (ms),
    None where unknown.
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
    takeovers: list[Takeover] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    records: int = 0

    @property
    def calls(self) -> Iterator[Call]:
        """The delegations of all steps."""
        return (call for step in self.steps for call in step.calls)


def causal_tree(run_id: str, envelopes: Iterable[EventEnvelope]) -> RunTree:
    """The tree below `run_id`, from the journals' events of it and of the runs that it delegated to.

    `envelopes` may hold more, in any interleaving of runs; within one run they are in journal order.
    """
    by_run: dict[str, list[EventEnvelope]] = {}
    for envelope in envelopes:
        for owner in _runs_of(envelope):
            by_run.setdefault(owner, []).append(envelope)
    return _grow(run_id, by_run, frozenset())


def child_runs(run_id: str, envelopes: Iterable[EventEnvelope]) -> list[tuple[str, str]]:
    """(agent type, run id) of each delegation that these events of `run_id` show."""
    found: dict[str, str] = {}
    for envelope in envelopes:
        if envelope.event_type in CALLS and caller_of(envelope.payload) == run_id:
            found.setdefault(envelope.payload["run_id"], envelope.payload["target_agent_type"])
    return [(agent_type, child) for child, agent_type in found.items()]


def _runs_of(envelope: EventEnvelope) -> set[str]:
    """The runs that an event says something about: a call and its answer belong to two."""
    payload = envelope.payload
    named = {payload.get("run_id"), payload.get("caller_run_id"), envelope.partition_key}
    return {name for name in named if isinstance(name, str)}


def _grow(run_id: str, by_run: dict[str, list[EventEnvelope]], above: frozenset[str]) -> RunTree:
    growth = _Growth(run_id)
    seen: set[str] = set()
    for envelope in by_run.get(run_id, ()):
        if envelope.event_id not in seen:
            seen.add(envelope.event_id)
            growth.apply(envelope)
    for call in growth.run.calls:
        # A run cannot be its own ancestor; a log that says so must not hang the reader.
        if call.call_id in by_run and call.call_id not in above | {run_id}:
            child = _grow(call.call_id, by_run, above | {run_id})
            if child.started_ms is not None:
                call.run = child
    return growth.run


class _Growth:
    """Folds one run's events into its `RunTree`."""

    def __init__(self, run_id: str) -> None:
        self.run = RunTree(run_id)
        self._by_entered: dict[str, StepTree] = {}
        self._by_key: dict[tuple[int, str], StepTree] = {}
        self._calls: dict[str, Call] = {}
        self._effects: dict[str, Effect] = {}
        self._instance = ""

    def apply(self, event: EventEnvelope) -> None:
        self.run.records += 1
        self._follow_owner(event)
        handler = getattr(self, f"_on_{event.event_type.replace('.', '_')}", None)
        if handler is not None:
            handler(event, event.payload)
        elif event.event_type in _ENDINGS:
            self._end(event, event.payload)
        elif not event.event_type.startswith(_PLUMBING):
            step = self._step_of(event)
            if step is not None:
                step.events.append(event.event_type)

    def _follow_owner(self, event: EventEnvelope) -> None:
        run, instance = self.run, event.producer.instance_id
        if run.started_ms is None or event.producer.agent_type != run.agent_type or not instance:
            return
        if not event.event_type.startswith(_OWNER_ALONE) or event.event_type == "run.parked":
            return  # an answer may come from another process of the same agent type
        if self._instance and instance != self._instance:
            after = max(0, event.timestamp_ms - run.started_ms)
            run.takeovers.append(Takeover(self._instance, instance, after))
        self._instance = instance

    def _step_of(self, event: EventEnvelope) -> StepTree | None:
        """The step that caused an event; else the last one that was entered."""
        found = self._by_entered.get(event.causation_id or "")
        return found or (self.run.steps[-1] if self.run.steps else None)

    def _step_at(self, payload: dict[str, Any]) -> StepTree | None:
        return self._by_key.get((payload["step"], payload["task_path"]))

    def _on_run_requested(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.agent_type = self.run.agent_type or payload["agent_type"]
        self.run.requested_ms = event.timestamp_ms
        self.run.input = self.run.input or payload["input"]

    def _on_run_started(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        run = self.run
        if run.started_ms is not None:
            return
        run.agent_type, run.agent_version = payload["agent_type"], payload["agent_version"]
        run.started_ms, run.status = event.timestamp_ms, "running"
        self._instance = event.producer.instance_id

    def _on_run_parked(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.status, self.run.reason = "parked", payload["reason"]

    def _on_run_resumed(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.status, self.run.reason = "running", None

    def _on_run_migrated(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.status, self.run.reason = "running", None
        source, target = payload["from_graph"]["version"], payload["to_graph"]["version"]
        self.run.moves.append(Move(source, target, payload["step"]))
        self.run.agent_version = payload["agent_version"]

    def _on_run_signalled(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.signals.append(payload["name"])

    def _end(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        run = self.run
        if run.ended_ms is not None:
            return  # the first terminal record wins (law 3)
        run.status, run.ended_ms, run.reason = _ENDINGS[event.event_type], event.timestamp_ms, None
        run.result = payload.get("result")
        run.error, run.where = payload.get("message") or payload.get("reason"), payload.get("where")
        elapsed = None if run.started_ms is None else max(0, event.timestamp_ms - run.started_ms)
        run.duration_ms = payload.get("duration_ms", elapsed)

    def _on_kernel_node_entered(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        key = (payload["step"], payload["task_path"])
        step = self._by_key.get(key)
        if step is None:
            step = StepTree(payload["node"], payload["step"], payload["task_path"], event.timestamp_ms)
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

    def _on_capability_invoked(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        if caller_of(payload) != self.run.run_id:  # the command of this run, not a call by it
            self.run.agent_type = self.run.agent_type or payload.get("target_agent_type") or ""
            self.run.requested_ms = event.timestamp_ms
            self.run.input = self.run.input or input_of(payload)
            return
        call_id = payload["run_id"]
        if call_id in self._calls:
            return
        call = Call(
            call_id,
            payload["capability_id"],
            payload["version"],
            payload["target_agent_type"],
            event.timestamp_ms,
        )
        self._calls[call_id] = call
        step = self._step_of(event)
        if step is not None:
            step.calls.append(call)

    def _on_capability_completed(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        call = self._calls.get(payload["call_id"])
        if call is not None and call.answered_ms is None:
            call.answered_ms = event.timestamp_ms
            call.output, call.error = output_of(payload), payload.get("error")

    _on_tool_invocation_requested = _on_capability_invoked
    _on_tool_invocation_completed = _on_capability_completed

    def _on_capability_unresolved(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        step = self._step_of(event)
        if step is not None:
            call = Call(payload["call_id"], payload["capability_id"], "", "", event.timestamp_ms)
            call.answered_ms, call.error = event.timestamp_ms, "nobody offers it"
            step.calls.append(call)

    def _on_effect_requested(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        if payload["effect_id"] in self._effects:
            return
        effect = self._effects[payload["effect_id"]] = Effect(payload["name"], event.timestamp_ms)
        step = self._step_of(event)
        if step is not None:
            step.effects.append(effect)

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
            # One that failed is called again under another id, and stays as it is.
            again = "running" if effect.status == "unknown" else "failed"
            status = {"result": "completed", "retry": again, "fail": "failed"}
            effect.status = status[payload["decision"]]

    def _on_run_compensation_started(self, event: EventEnvelope, payload: dict[str, Any]) -> None:
        self.run.status, self.run.error = "compensating", payload["message"]
        self.run.reason = None

    def _settle(self, payload: dict[str, Any], status: str, error: str | None) -> None:
        effect = self._effects.get(payload["effect_id"])
        # What a call has come to may be reported after its outcome was unknown.
        if effect is not None and effect.status in ("running", "unknown"):
            effect.status, effect.error = status, error
            effect.duration_ms = payload.get("duration_ms")
