"""A `RunJournal` in memory: it answers from a recording, performs nothing new, and writes nothing.

Its run has the id of the recorded one, so that a call of the same content at the same place has the same id:
what came of it is in the history from the start. The steps after the fork are not: bodies run. A new call is
noted, and the task that made it ends (`EndOfRecording`, which the graph takes for an interrupt) before
anything is called. New effects of the class PURE are the exception: they are called,
up to a limit, since code that polls would go on for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn
from weakref import WeakKeyDictionary

from noesium_stream.clock import SystemClock
from noesium_stream.errors import CapabilityNotFoundError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.event.rules.agent_calls import CALLS
from noesium_stream.event.rules.effect_ledger import awaits_decision
from noesium_stream.event.rules.tool_calls import is_told
from noesium_stream.event.standard import ForkRef, SideEffectClass
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.journal import Destination, FactTopic, Provider, RunIdentity, TaskTopic, Wanted
from noesium_stream.kernel.recording.end_of_recording import EndOfRecording, StillClock
from noesium_stream.kernel.recording.fork import inherit, shared_history
from noesium_stream.kernel.recording.recorded_run import RecordedRun, call_key, is_call
from noesium_stream.kernel.recording.replaying import Replaying
from noesium_stream.kernel.run_history import RunHistory, StepKey, undo_id
from noesium_stream.kernel.step.position import Place, enclosing_step

_SPINS: Final = 40
"""Turns of the event loop in which other tasks of a stopped step may come to their own calls."""

MAX_CALLS: Final = 1000
"""New PURE calls and pauses of a dry run: time does not pass in it, so that code that polls never ends."""

_MAX_ROUNDS: Final = MAX_CALLS
"""Times that a stopped step waits for the progress of others."""

_MAX_REFUSALS: Final = 100
"""Times that a stopped task is told so by an error that `except Exception` takes."""

_NODE: Final = "kernel.node."
_OF_KERNEL: Final = ("kernel.", "effect.", "approval.", "timer.", "capability.", "run.", "task.")
_NOT_LOOKED_UP: Final = "unresolved"
"""The provider of a call that is not made: nobody looks it up."""


@dataclass(slots=True)
class DryStep:
    """One node of a dry run.

    Attributes:
        reused: recorded requests whose recorded results it got.
        calls: new requests, as type and payload; those of PURE effects were performed.
        events: domain events that it would emit, as type and payload.
        outcome: `completed`, `failed`, or `open`: it stopped, or ran when the dry run ended.
        error: the error of its last attempt.
        waits: what it waits for, besides the results of its calls.
        polls: whether it stopped since the dry run had made `MAX_CALLS` calls and pauses.
    """

    key: StepKey
    node: str
    reused: dict[str, EventEnvelope] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    outcome: str = "open"
    error: str | None = None
    waits: str | None = None
    polls: bool = False

    @property
    def lacks_result(self) -> bool:
        """Whether it has asked for what a dry run does not have."""
        return self.polls or self.waits is not None or any(_needs_outside(*call) for call in self.calls)


class _Refused(BaseException):
    """Ends a body that takes every `Exception` and tries again, for good."""


class DryRunJournal(Replaying):
    """The journal of a dry run of a fork.

    Args:
        parent: the recording of the run to branch off.
        ref: where, and with which values.
        prepare: called before each call of a PURE effect.

    Attributes:
        steps: the nodes that ran, in order.
        ended: whether a task stopped for want of a result.
    """

    def __init__(
        self, parent: RecordedRun, ref: ForkRef, prepare: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        started = parent.started
        self.steps: dict[StepKey, DryStep] = {}
        self.ended = False
        self.clock = StillClock(SystemClock().now_ms())
        self.activity = Activity()
        self.activity.assured = prepare
        self.identity = RunIdentity(
            parent.run_id, started.producer, started.trace, parent.run_id, parent.command.event_id
        )
        self.history = RunHistory()
        self._recorded: dict[str, EventEnvelope] = {}
        self._entered: dict[StepKey, EventEnvelope] = {}
        self._stopped: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        """The tasks that have stopped, and how often each was told so."""
        self._progress = 0
        self._calls = 0
        self._begin(parent, ref)

    def _begin(self, parent: RecordedRun, ref: ForkRef) -> None:
        """Put the shared history into the run's, and what came of recorded calls after it."""
        self.history.apply(parent.command)
        started = parent.started
        # A fork begins without its parent's deadline.
        self.history.apply(started.replace(payload={**started.payload, "deadline_ms": None}))
        inherit(self.history, shared_history(parent, ref.step, ref.values, tuple(ref.reduced)))
        self.history.provenance.begin_fork(ref.labels, ref.said)
        whole = RunHistory()
        for item in parent.events:
            whole.apply(item.event)
        calls: set[str] = set()
        for item in parent.events:
            event, kind = item.event, item.event.event_type
            key = call_key(event.payload)
            if kind == f"{_NODE}entered" and undo_id(_step_key(event.payload)) is None:
                self._entered.setdefault(_step_key(event.payload), event)
            elif kind == "capability.requested" and key is not None and _has_result(whole, event, key):
                calls.add(key)
                if key not in whole.invoked:
                    self._recorded.setdefault(key, event)
            elif is_call(kind) and key is not None and _has_result(whole, event, key):
                calls.add(key)
                # The fingerprint of a question is its content's: several questions may share it.
                called = event.payload["fingerprint"] if kind == "effect.requested" else key
                self._recorded.setdefault(called, event)
            if kind == "run.signalled" or (key in calls and not kind.startswith(_NODE)):
                self.history.apply(event)

    # -- RunJournal ----------------------------------------------------------------------------------

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | TaskTopic | FactTopic | None = None,
    ) -> EventEnvelope:
        """Note what the run would do; a new call stops its task with the next `commit` or `until`.

        Raises:
            EndOfRecording: the task, or one of the node that ends here, has stopped.
        """
        kind, payload = event.event_type(), event.payload()
        if self._is_stopped():
            self._refuse(kind)
        self._progress += 1
        made = event.to_envelope(self.identity.agent, trace, causation_id, clock=self.clock)
        if kind.startswith(_NODE):
            made = self._node(kind, payload, made)
        elif is_call(kind):
            if not self._may_call(kind, payload):
                self._stop_task()
                return made
        elif not kind.startswith(_OF_KERNEL) and not is_told(kind, payload):
            self._here().events.append((kind, payload))
        self.history.apply(made)
        return made

    def savepoint(self) -> int:
        """Return the number of noted domain events of the calling step."""
        return len(self._here().events)

    def rollback(self, savepoint: int) -> None:
        """Drop later domain events of the calling step."""
        del self._here().events[savepoint:]

    async def commit(self) -> None:
        """Yield to other tasks; write nothing.

        Raises:
            EndOfRecording: the task has made a call that is not performed.
        """
        await asyncio.sleep(0)
        if self._is_stopped():
            await self._stop()

    async def resolve(self, wanted: Wanted) -> Provider:
        """A placeholder: the call is not made, so nobody looks its provider up.

        Raises:
            CapabilityNotFoundError: others were tried, and what came of that is recorded.
        """
        if wanted.tried:
            raise CapabilityNotFoundError(f"Nobody else was asked for {wanted.capability_id}.")
        return Provider(_NOT_LOOKED_UP, _NOT_LOOKED_UP, wanted.capability_id, "0.0.0", 0)

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """Return when `ready`: by what is recorded, or, for a pause, at its end, which comes at once.

        Raises:
            EndOfRecording: what it waits for is not recorded.
        """
        await self.commit()
        if ready():
            return
        if deadline_ms is not None:
            self.clock.advance(max(0, deadline_ms - self.clock.now_ms()) / 1000)
            if ready():
                return
        self._here().waits = "a signal or an answer that is not recorded"
        self._stop_task()
        await self._stop()

    def has_passed(self, due_ms: int) -> bool:
        """True: nobody waits for pauses."""
        return True

    # -- steps and ends ------------------------------------------------------------------------------

    def _may_call(self, kind: str, payload: dict[str, Any]) -> bool:
        """Note a new call; return whether it is made."""
        step = self._here()
        if _needs_outside(kind, payload):
            step.calls.append((kind, payload))
            return False
        if self._calls == MAX_CALLS:
            step.polls = True
            return False
        self._calls += 1
        step.calls.append((kind, payload))
        return True

    def _node(self, kind: str, payload: dict[str, Any], made: EventEnvelope) -> EventEnvelope:
        key = _step_key(payload)
        if kind == f"{_NODE}entered":
            self.steps[key] = DryStep(key, payload["node"])
            recorded = self._entered.get(key)
            # With its recorded time, `now()` gives what it gave, and calls that hold it are the same.
            return recorded if recorded and recorded.payload["node"] == payload["node"] else made
        step = self.steps[key]
        if kind == f"{_NODE}retried":
            return made
        self._note_reused()
        if step.lacks_result:
            self._end()  # it goes on without a result, as if the call had failed
        step.outcome = kind.removeprefix(_NODE)
        step.error = f"{payload['error_type']}: {payload['message']}" if "error_type" in payload else None
        return made

    def _here(self) -> DryStep:
        place = enclosing_step()
        if place is None:
            raise RuntimeError("a dry run notes calls and events of steps only")
        return self.steps[place.key]

    def _note_reused(self) -> None:
        place: Place | None = enclosing_step()
        if place is not None:
            found = {key: event for key, event in self._recorded.items() if key in place.called}
            self.steps[place.key].reused = found

    def _is_stopped(self) -> bool:
        return asyncio.current_task() in self._stopped

    def _stop_task(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._stopped.setdefault(task, 0)

    async def _stop(self) -> NoReturn:
        """End the task when other tasks of the run have come to their own calls."""
        seen = -1
        for _ in range(_MAX_ROUNDS):
            if seen == self._progress:
                break
            seen = self._progress
            for _ in range(_SPINS):
                await asyncio.sleep(0)
        self._end()

    def _refuse(self, kind: str) -> NoReturn:
        """End a stopped task that goes on, or the node that ends with it."""
        task = asyncio.current_task()
        if task is not None and not kind.startswith(_NODE):
            self._stopped[task] += 1
            if self._stopped[task] > _MAX_REFUSALS:
                raise _Refused
        self._end()

    def _end(self) -> NoReturn:
        self._note_reused()
        self.ended = True
        raise EndOfRecording


def _step_key(payload: dict[str, Any]) -> StepKey:
    return payload["step"], payload["task_path"]


def _has_result(whole: RunHistory, call: EventEnvelope, key: str) -> bool:
    """Whether a recorded call came to an end: with a result, an error, an answer or a decision.

    What was done to undo the run does not count.
    """
    if call.payload.get("compensates") is not None:
        return False
    outcome = whole.outcomes.get(key)
    if outcome is not None:
        return not awaits_decision(outcome) or outcome.event_id in whole.resolved
    ends = (whole.answered, whole.closed, whole.fired, whole.unresolved, whole.refused, whole.expired)
    return any(key in found for found in ends)


def _needs_outside(kind: str, payload: dict[str, Any]) -> bool:
    """Whether a new call needs what a dry run does not do: an effect, another agent, a person."""
    if kind == "effect.requested":
        return bool(payload["effect_class"] != SideEffectClass.PURE.value)
    return kind in CALLS or kind == "approval.requested"
