"""A recorded run, indexed for a replay.

The records of a run's owner are of three kinds. The actions of its code (entering a node, requesting an
effect, emitting an event, a delta) are *required*: a replay has to repeat them. What comes back (results,
answers, timers) is *served*: the replay gets them when it asks. The run's life cycle (started, ended)
surrounds both.

Failed attempts are not repeated. A failure is a recorded fact like the result of an effect: the run continues
after it as after a crash, with the actions of the earlier attempts. Only a node's final failure is repeated,
and has to be the same.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import ANSWERS, CALLS
from noesium_stream.event.rules.model_calls import made_within
from noesium_stream.event.rules.tool_calls import INVOKED, is_told
from noesium_stream.kernel.compensation.plan import Undoing
from noesium_stream.kernel.recording.recorded_run import RecordedRun, call_key, is_call
from noesium_stream.kernel.run_history import SIGNAL_AWAITED, RunHistory, StepKey, nested_in, step_id, undo_id
from noesium_stream.kernel.segment_state import MOVES

_LIFE: Final = ("run.", "command.")
SERVED: Final = frozenset(
    {
        "effect.completed",
        "effect.failed",
        "effect.outcome.unknown",
        "effect.reported",
        "effect.resolved",
        *ANSWERS,
        "capability.refused",
        "capability.expired",
        "approval.answered",
        "approval.expired",
        "timer.fired",
    }
)
"""Types of a call's results: a replay never stages them."""

_OF_CALLS: Final = frozenset({"capability.requested", "capability.unresolved"})
_NODE: Final = "kernel.node."


@dataclass(slots=True)
class RecordedCall:
    """A call and its results, in order.

    `request`: the `capability.requested` of a call of an agent; an earlier release has not recorded it. As
    long as nobody was called it is the `event`, too.
    """

    key: str
    event: EventEnvelope
    index: int
    number: int
    followed_by: list[EventEnvelope] = field(default_factory=list)
    made: bool = False
    request: EventEnvelope | None = None


@dataclass(slots=True)
class RecordedStep:
    """The recording of one step."""

    key: StepKey
    node: str
    index: int
    entered: EventEnvelope | None = None
    completed: EventEnvelope | None = None
    failures: list[EventEnvelope] = field(default_factory=list)
    retried: dict[int, EventEnvelope] = field(default_factory=dict)
    calls: dict[str, RecordedCall] = field(default_factory=dict)
    events: list[EventEnvelope] = field(default_factory=list)
    over: int = -1
    final_failure: EventEnvelope | None = None

    @property
    def frontier(self) -> bool:
        """Whether the recording ends within this step."""
        return self.completed is None and self.final_failure is None

    @property
    def lasted_ms(self) -> int:
        """Time from its entry to its end; if the recording ends within it, to its last call."""
        last = self.completed or self.final_failure
        known = [last] if last else [call.event for call in self.calls.values()]
        begun = (self.entered or known[0]).timestamp_ms if known else 0
        return max((event.timestamp_ms - begun for event in known), default=0)

    def unmade(self) -> RecordedCall | None:
        """The first call of the last attempt that the replay has not repeated."""
        open_calls = (call for call in self.calls.values() if not call.made and call.index > self.over)
        return next((call for call in open_calls if not self._is_within(call)), None)

    def _is_within(self, call: RecordedCall) -> bool:
        """Whether the call was made by a tool whose own call has an outcome, and so is not repeated."""
        outer = self.calls.get(made_within(call.event.payload) or "")
        return outer is not None and bool(outer.followed_by)


class ReplayIndex:
    """The recording of one run by steps; `history` is the start of a replay.

    With `part` it covers only the graph that undid this part of the run. `invoked` has each `tool.invoked` of
    the kernel, by its idempotency key.
    """

    def __init__(self, run: RecordedRun, part: Undoing | None = None) -> None:
        self.run = run
        self._part = part
        self.steps: dict[StepKey, RecordedStep] = {}
        self.checkpoints: dict[int, EventEnvelope] = {}
        self.invoked: dict[str, EventEnvelope] = {}
        self.history = RunHistory()
        self._homes: dict[str, StepKey] = {}
        self._calls: dict[str, RecordedCall] = {}
        self._served: dict[str, list[EventEnvelope]] = defaultdict(list)
        self._last_step: dict[str, int] = {}
        self._read()
        self._settle_failures()
        self._begin_history()

    @property
    def is_complete(self) -> bool:
        """Whether the run ended with a result, or its part was undone."""
        if self._part is not None:
            return self._part_is_undone
        terminal = self.run.terminal
        return terminal is not None and terminal.event_type == "run.completed"

    def home(self, event_id: str | None) -> StepKey | None:
        """The step that a recorded event belongs to."""
        return self._homes.get(event_id or "")

    def answers_to(self, event: EventEnvelope) -> list[EventEnvelope]:
        """All results of a recorded call, in order; nothing for another event."""
        call = self._calls.get(call_key(event.payload) or "")
        return call.followed_by if call is not None and call.event is event else []

    def beyond(self, key: StepKey) -> bool:
        """Whether a step without a recording may come after the end of the recording."""
        if self.is_complete:
            return False
        group = _group(key)
        parent = self.steps.get(_parent(group)) if group else None
        if parent is not None and not parent.frontier:
            return False
        return key[0] >= self._last_step.get(group, 0)

    def ends_at(self, step: RecordedStep) -> bool:
        """Whether the recording ends with a begun step, or with the graph that the step runs."""
        within = step_id(step.key)
        return (
            step.frontier
            and step.unmade() is None
            and not any(nested_in(key) == within for key in self.steps)
        )

    def siblings(self, key: StepKey) -> list[RecordedStep]:
        """The recorded steps of the same superstep."""
        return [
            step for other, step in self.steps.items() if other[0] == key[0] and _group(other) == _group(key)
        ]

    def superseded(self, step: RecordedStep) -> list[EventEnvelope]:
        """The step's records up to its last failure that is not repeated, in order."""
        if step.over < 0:
            return []
        return [
            item.event
            for index, item in enumerate(self.run.events)
            if index <= step.over and not item.received and self._is_of(item.event, step.key)
        ]

    def _is_of(self, event: EventEnvelope, key: StepKey) -> bool:
        if self._homes.get(event.event_id) == key:
            return True
        call = self._calls.get(call_key(event.payload) or "")
        return call is not None and self._homes.get(call.event.event_id) == key

    def _is_elsewhere(self, event: EventEnvelope) -> bool:
        """Whether it belongs to another graph than this one: a run's compensations are not its own steps."""
        payload = event.payload
        of_node = event.event_type.startswith(_NODE)
        base = undo_id((payload["step"], payload["task_path"])) if of_node else None
        if self._part is not None:
            return of_node and base != self._part.base
        return payload.get("compensates") is not None or base is not None

    def _read(self) -> None:
        started = False
        for index, item in enumerate(self.run.events):
            event, kind = item.event, item.event.event_type
            if kind == "run.started":
                started = True
            elif not started or kind.startswith(_LIFE) or self._is_elsewhere(event):
                continue
            elif kind.startswith(_NODE):
                self._node(index, event)
            elif kind == SIGNAL_AWAITED or is_told(kind, event.payload):
                # For readers: a signal that is on the log by now is not waited for.
                if kind == INVOKED and event.idempotency_key is not None:
                    self.invoked[event.idempotency_key] = event
            elif kind == "kernel.checkpoint.created":
                self.checkpoints.setdefault(event.payload["step"], event)
            elif item.received or kind in SERVED:
                self._serve(event)
            else:
                self._of_step(index, event)

    def _node(self, index: int, event: EventEnvelope) -> None:
        payload = event.payload
        key: StepKey = payload["step"], payload["task_path"]
        self._homes[event.event_id] = key
        step = self.steps.get(key)
        if step is None:
            step = self.steps[key] = RecordedStep(key, payload["node"], index)
            group = _group(key)
            self._last_step[group] = max(key[0], self._last_step.get(group, 0))
        last = event.event_type.removeprefix(_NODE)
        if last == "entered":
            step.entered = step.entered or event
        elif last == "completed":
            step.completed = step.completed or event
        elif last == "failed":
            step.failures.append(event)
            step.over = index
        elif last == "retried":
            step.retried[payload["attempt"]] = event

    def _serve(self, event: EventEnvelope) -> None:
        key = call_key(event.payload)
        call = self._calls.get(key or "")
        if call is not None:
            call.followed_by.append(event)
            self._homes[event.event_id] = self._homes[call.event.event_id]

    def _of_step(self, index: int, event: EventEnvelope) -> None:
        home = self._homes.get(event.causation_id or "")
        if home is None:
            return
        self._homes[event.event_id] = home
        step = self.steps[home]
        if not is_call(event.event_type) and event.event_type not in _OF_CALLS:
            step.events.append(event)
            return
        key = call_key(event.payload) or event.event_id
        call = self._calls.get(key)
        if call is None:
            request = event if event.event_type == "capability.requested" else None
            call = self._calls[key] = RecordedCall(key, event, index, len(step.calls), request=request)
            step.calls[key] = call
        elif call.event is call.request and event.event_type in CALLS:
            call.event = event
        else:
            call.followed_by.append(event)  # repeated by a person's decision, or the end of a request

    def _settle_failures(self) -> None:
        """Decide which failures are facts from the start, and which one is repeated."""
        for step in self.steps.values():
            if not step.failures or step.completed is not None:
                continue
            last = step.failures[-1]
            if last.payload.get("retry_in_ms") is None:
                step.final_failure = last
                before = step.failures[-2].event_id if len(step.failures) > 1 else None
                step.over = next(
                    (i for i, item in enumerate(self.run.events) if item.event.event_id == before), -1
                )

    def _begin_history(self) -> None:
        """Add the command, the start, unsolicited events of others, and the finished attempts."""
        for event in self.run.shared:
            self.history.apply(event)
        early = {event.event_id for step in self.steps.values() for event in self.superseded(step)}
        answered = {key for key, call in self._calls.items() if call.event.event_id in early}
        for item in self.run.events:
            event, kind = item.event, item.event.event_type
            key = call_key(event.payload)
            by_itself = item.received and kind != "run.cancel.requested" and key not in self._calls
            begins = kind in ("run.requested", "run.started", *MOVES) or event is self.run.command
            if begins or by_itself or event.event_id in early or key in answered:
                self.history.apply(event)
        if self._part is not None:
            self.history.undoing[self._part.base] = self._part.what
            over = (failed for step in self.steps.values() for failed in step.failures)
            final = {step.final_failure.event_id for step in self.steps.values() if step.final_failure}
            self.history.forgiven.update({failed.event_id for failed in over} - final)

    @property
    def _part_is_undone(self) -> bool:
        part, effects = self._part, set()
        for item in self.run.events:
            payload = item.event.payload
            if item.event.event_type == "effect.requested" and part and payload["fingerprint"] == part.base:
                effects.add(payload["effect_id"])
            elif item.event.event_type == "effect.completed" and payload["effect_id"] in effects:
                return True
        return False


def _group(key: StepKey) -> str:
    """The graph of a step: empty for the run's own, else the step that runs the subgraph."""
    return key[1].rpartition("|")[0]


def _parent(group: str) -> StepKey:
    step, _, path = group.rpartition("|")[0].partition(":")
    return (int(step), path) if step.isdigit() else (0, group)  # a graph that undoes has none
