"""A `RunJournal` over a recorded run: the code runs again, and nothing is written or called.

The recorded deltas are hidden, so that bodies run. A body's request is looked up in the recording and
answered from there. A staged event is compared with the recorded one at that place, and the recorded event is
returned, so that times and ids are those of the recording. An event that is not recorded is a difference, and
raises `ReplayDivergenceError` before anything is done. An event beyond the end of the recording of an open
run raises `EndOfRecording`, which the graph takes for an interrupt: sibling nodes continue up to their
recorded positions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from noesium_stream.clock import Clock
from noesium_stream.errors import CapabilityNotFoundError, KernelError, ReplayDivergenceError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope, TraceContext
from noesium_stream.event.rules.tool_calls import is_told
from noesium_stream.kernel.activity import Activity
from noesium_stream.kernel.journal import Destination, FactTopic, Provider, RunIdentity, TaskTopic, Wanted
from noesium_stream.kernel.recording.end_of_recording import EndOfRecording, StillClock, while_others_go_on
from noesium_stream.kernel.recording.recorded_run import call_key, is_call
from noesium_stream.kernel.recording.replay_index import SERVED, RecordedCall, RecordedStep, ReplayIndex
from noesium_stream.kernel.recording.replaying import Replaying
from noesium_stream.kernel.run_history import SIGNAL_AWAITED, RunHistory, StepKey, superstep
from noesium_stream.kernel.step.position import Place, this_step
from noesium_stream.kernel.verify.compare_step import (
    Found,
    compare_call,
    compare_checkpoint,
    compare_delta,
    compare_events,
    compare_order,
)
from noesium_stream.kernel.verify.difference import (
    NOTHING,
    Difference,
    describe_call,
    ordinal,
    text,
)

_SPINS: Final = 40
"""Turns of the event loop without progress after which no further progress is possible."""

InRange = Callable[[str, str | None], bool]
"""Whether a version is in a range, as the registry judges it."""


@dataclass(slots=True)
class _Replayed:
    """The replay's actions in one step so far."""

    events: list[DomainEvent] = field(default_factory=list)
    made: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    stray: str | None = None


class VerifyJournal(Replaying):
    """The journal of a replay; `difference` is the first one found."""

    def __init__(self, recording: ReplayIndex, in_range: InRange) -> None:
        run = recording.run
        started = run.started
        self.recording = recording
        self.difference: Difference | None = None
        self.decided = asyncio.Event()
        self.ended = False
        self.entered: set[StepKey] = set()
        self.done: set[StepKey] = set()
        self.strange: tuple[StepKey, str] | None = None
        self.beyond: dict[int, str] = {}
        self._in_range = in_range
        self._clock = StillClock(run.events[-1].event.timestamp_ms)
        self._now: dict[StepKey, _Replayed] = defaultdict(_Replayed)
        self._staged: list[list[DomainEvent]] = []
        self._stopped_tasks: set[int] = set()
        self._progress = 0
        self._activity = Activity()
        self._identity = RunIdentity(
            run_id=run.run_id,
            agent=started.producer,
            trace=started.trace,
            correlation_id=started.correlation_id or run.run_id,
            started_event_id=run.command.event_id,
        )

    # -- RunJournal ----------------------------------------------------------------------------------

    @property
    def identity(self) -> RunIdentity:
        """See `RunJournal.identity`."""
        return self._identity

    @property
    def history(self) -> RunHistory:
        """The repeated part of the run, and the records of other senders."""
        return self.recording.history

    @property
    def clock(self) -> Clock:
        """A clock that nobody waits for."""
        return self._clock

    @property
    def activity(self) -> Activity:
        """See `RunJournal.activity`."""
        return self._activity

    def stage(
        self,
        event: DomainEvent,
        *,
        trace: TraceContext,
        causation_id: str | None,
        idempotency_key: str | None = None,
        to: Destination | TaskTopic | FactTopic | None = None,
    ) -> EventEnvelope:
        """Compare with the recording; return the recorded event.

        Raises:
            ReplayDivergenceError: the recording has something else there.
            EndOfRecording: the recording ends there.
        """
        kind, payload = event.event_type(), event.payload()
        if self.strange is not None and kind == "kernel.node.entered":
            self.entered.add((payload["step"], payload["task_path"]))
        self._check()
        self._progress += 1
        if kind.startswith("kernel.node."):
            key: StepKey = payload["step"], payload["task_path"]
            found = _NODE_EVENTS[kind](self, key, payload)
        elif kind == "kernel.checkpoint.created":
            found = self._checkpoint(payload)
        else:
            found = self._of_step(event, payload, self.recording.home(causation_id))
        if found is None:
            made = event.to_envelope(
                self._identity.agent, trace, causation_id, idempotency_key=idempotency_key, clock=self._clock
            )
            if kind.startswith("memory."):
                self.history.remembered.append(made)  # later steps read it; it is compared with its step
            if kind.startswith("goal."):
                self.history.goals.append(made)
            return made
        self.history.apply(found)
        if kind not in ("kernel.node.entered", "kernel.node.completed"):
            for answer in self.recording.answers_to(found):
                self.history.apply(answer)
        return found

    def recorded(self, call_id: str) -> EventEnvelope | None:
        """See `RunJournal.recorded`."""
        step = self.recording.steps.get(this_step().key)
        call = None if step is None else step.calls.get(call_id)
        return self.recording.invoked.get(call_id) if call is None else call.event

    def savepoint(self) -> int:
        """See `RunJournal.savepoint`."""
        return len(self._staged)

    def rollback(self, savepoint: int) -> None:
        """See `RunJournal.rollback`."""
        while len(self._staged) > savepoint:
            self._staged.pop().pop()

    async def commit(self) -> None:
        """Yield to other tasks; write nothing.

        Raises:
            EndOfRecording: a staged event is beyond the end of the recording.
        """
        self._check()
        await asyncio.sleep(0)
        self._check()
        if _task() in self._stopped_tasks:
            await self._nothing_follows()

    async def resolve(self, wanted: Wanted) -> Provider:
        """The recorded provider of this call.

        Raises:
            CapabilityNotFoundError: there was no provider then.
            ReplayDivergenceError, EndOfRecording: as in `stage`.
        """
        self._check()
        step = self.recording.steps[this_step().key]
        capability_id, version_range = wanted.capability_id, wanted.version_range
        asked = f"{capability_id} {version_range or ''}".rstrip()
        self._in_range("0.0.0", version_range)  # raises what a wrong range raised then
        call = step.calls.get(wanted.call_id)
        if call is None and wanted.tried:
            raise CapabilityNotFoundError(f"Nobody else was asked for {asked}.")
        # If there is no such call, another one of the capability: `stage` then shows both.
        call = call or next((one for one in step.calls.values() if _may_be_meant(one, capability_id)), None)
        if call is None:
            self._unrecorded_call(step, asked)
            await self._nothing_follows()
        payload = call.event.payload
        if call.event is call.request:
            await self._nothing_follows("waits for a provider that never came")
        if call.event.event_type == "capability.unresolved":
            failure = step.final_failure
            message = f"Nobody offers {asked}." if failure is None else failure.payload["message"]
            raise CapabilityNotFoundError(message)
        if not self._in_range(payload["version"], version_range):
            what = f"the {ordinal(call.number)} call differs in its version"
            self._differs(step.key, what, f"{capability_id} {payload['version']}", asked)
        return Provider(
            payload["target_agent_id"],
            payload["target_agent_type"],
            capability_id,
            payload["version"],
            payload["registry_offset"],
        )

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        """Return when `ready`; the recording holds all events that ever arrived.

        Raises `ReplayDivergenceError` if the recorded step continued here, else `EndOfRecording`.
        """
        await self.commit()
        for _ in range(_SPINS):
            if ready():
                return
            await asyncio.sleep(0)
        await self._nothing_follows("waits for something that never came")

    def has_passed(self, due_ms: int) -> bool:
        """True: the recording says what follows a pause, whatever the clock showed then."""
        return True

    # -- the parts of a step -------------------------------------------------------------------------

    def _entered(self, key: StepKey, payload: dict[str, Any]) -> EventEnvelope:
        step = self.recording.steps.get(key)
        if step is None or step.entered is None or step.node != payload["node"]:
            if step is None and self.recording.beyond(key):
                self.beyond.setdefault(superstep(key), payload["node"])
                self._end()
            # It is reported, with the recorded node that it replaces, when its siblings have begun as well.
            self.strange = self.strange or (key, payload["node"])
            self.decided.set()
            raise ReplayDivergenceError(f"The node {payload['node']} does not run there in the recording.")
        self.entered.add(key)
        if self.recording.ends_at(step):
            self._end()
        return step.entered

    def _retried(self, key: StepKey, payload: dict[str, Any]) -> EventEnvelope | None:
        step = self.recording.steps[key]
        if step.node != payload["node"]:
            self._differs(key, "another node runs here", step.node, payload["node"])
        self.entered.add(key)
        if self.recording.ends_at(step):
            self._end()
        return step.retried.get(payload["attempt"])

    def _completed(self, key: StepKey, payload: dict[str, Any]) -> EventEnvelope:
        step = self.recording.steps[key]
        if step.final_failure is not None:
            failed = step.final_failure.payload
            message = f"{failed['error_type']}: {failed['message']}"
            self._differs(key, "it does not fail any more", text(message), "completed")
        if step.completed is None:
            self._end()
        missing = step.unmade()
        if missing is not None:
            what = f"the {ordinal(missing.number)} call is not made any more"
            self._differs(key, what, describe_call(missing.event.event_type, missing.event.payload), NOTHING)
        self._check_found(key, compare_events(step.events, self._now[key].events))
        recorded = step.completed.payload
        self._check_found(key, compare_delta(recorded.get("delta"), payload.get("delta")))
        self.entered.add(key)
        self.done.add(key)
        return step.completed

    def _failed(self, key: StepKey, payload: dict[str, Any]) -> EventEnvelope:
        step = self.recording.steps[key]
        now = f"{payload['error_type']}: {payload['message']}"
        if step.completed is not None:
            self._differs(key, "it fails now", "completed", text(now))
        final = step.final_failure
        if final is None:
            self._end()
        recorded = f"{final.payload['error_type']}: {final.payload['message']}"
        if recorded != now:
            self._differs(key, "it fails otherwise", text(recorded), text(now))
        if payload.get("retry_in_ms") is not None:
            self._differs(key, "it is tried again now", text(recorded), f"{text(now)}, and another attempt")
        self.done.add(key)
        return final

    def _of_step(
        self, event: DomainEvent, payload: dict[str, Any], home: StepKey | None
    ) -> EventEnvelope | None:
        kind = event.event_type()
        if home is not None and kind == "capability.requested":
            return self._request(self.recording.steps[home], payload)
        if home is not None and (is_call(kind) or kind == "capability.unresolved"):
            return self._call(self.recording.steps[home], kind, payload)
        if kind in SERVED:
            raise KernelError(f"A replay made {kind}, which the recording alone can have.")
        if home is not None and kind != SIGNAL_AWAITED and not is_told(kind, payload):
            self._now[home].events.append(event)
            self._staged.append(self._now[home].events)
        return None

    def _checkpoint(self, payload: dict[str, Any]) -> EventEnvelope | None:
        found = self.recording.checkpoints.get(payload["step"])
        if found is None:
            return None
        nodes = ", ".join(payload.get("nodes") or ())
        self._check_found((payload["step"], ""), compare_checkpoint(found.payload, payload), node=nodes)
        return found

    def _call(self, step: RecordedStep, kind: str, payload: dict[str, Any]) -> EventEnvelope | None:
        call = step.calls.get(call_key(payload) or "")
        if call is None or call.event.event_type != kind:
            self._unrecorded_call(step, describe_call(kind, payload))
            return None
        made = self._now[step.key].made[_task()]
        self._check_found(step.key, compare_call(call, payload) or compare_order(call, made))
        made.append((call.index, describe_call(kind, payload)))
        call.made = True
        if kind == "effect.requested" and all(e.event_type == "effect.reported" for e in call.followed_by):
            self._stop_task()  # its outcome is unknown: it is not called to find out
        return call.event

    def _request(self, step: RecordedStep, payload: dict[str, Any]) -> EventEnvelope | None:
        """Find the request of a call; the call itself is compared when it is made, with what it asks."""
        call = step.calls.get(payload["call_id"])
        if call is not None and call.event is call.request:
            return self._call(step, "capability.requested", payload)
        return None if call is None else call.request

    # -- ends ----------------------------------------------------------------------------------------

    def _unrecorded_call(self, step: RecordedStep, now: str) -> None:
        """Handle a call that is not recorded; returns only if the recording may simply end there."""
        missing = step.unmade()
        if not step.frontier:
            if missing is None:
                number = sum(call.made for call in step.calls.values())
                what = f"it makes a {ordinal(number)} call"
                self._differs(step.key, what, NOTHING, now)
            recorded = describe_call(missing.event.event_type, missing.event.payload)
            self._differs(step.key, f"the {ordinal(missing.number)} call differs", recorded, now)
        self._now[step.key].stray = self._now[step.key].stray or now
        self._stop_task()

    def stray(self, key: StepKey) -> str | None:
        """A step's first call that is not recorded, at the end of the recording."""
        return self._now[key].stray

    async def _nothing_follows(self, now: str = "waits for a result that is not recorded") -> NoReturn:
        """Handle a wait whose result is not recorded."""
        self._stopped_tasks.discard(_task())  # it may give the call up and continue
        seen = -1
        while seen != self._progress:
            seen = self._progress
            for _ in range(_SPINS):
                await asyncio.sleep(0)
        self._check()
        here = this_step()
        step = self.recording.steps.get(here.key)
        if step is not None and (not step.frontier or step.unmade() is not None):
            await while_others_go_on(step, lambda: self._is_settled(here, step))
            self._check()
            if here.closed:
                raise asyncio.CancelledError  # the step continued without this task, as it did then
        if step is not None and not step.frontier:
            missing = step.unmade()
            ended = "completed" if step.completed is not None else "failed"
            recorded = (
                ended if missing is None else describe_call(missing.event.event_type, missing.event.payload)
            )
            self._differs(step.key, "it does not go on", recorded, now)
        self._end()

    def _is_settled(self, here: Place, step: RecordedStep) -> bool:
        """Whether it is certain by now that a step continued, or what follows the calls of an open one."""
        return self.decided.is_set() or here.closed or (step.frontier and step.unmade() is None)

    def _stop_task(self) -> None:
        self._stopped_tasks.add(_task())

    def _end(self) -> NoReturn:
        self.ended = True
        raise EndOfRecording()

    def _check_found(self, key: StepKey, found: Found | None, *, node: str | None = None) -> None:
        if found is not None:
            self._differs(key, *found, node=node)

    def _differs(
        self, key: StepKey, what: str, recorded: str, now: str, *, node: str | None = None
    ) -> NoReturn:
        if self.difference is None:
            step = self.recording.steps.get(key)
            name = node if node is not None else step.node if step is not None else None
            self.difference = Difference(superstep(key), name, what, recorded, now)
        self.decided.set()
        raise ReplayDivergenceError(str(self.difference))

    def _check(self) -> None:
        # Also if the node swallows the error: after the first difference nothing is compared any more.
        if self.decided.is_set():
            raise ReplayDivergenceError("The replay has parted from the recording.")


def _may_be_meant(call: RecordedCall, capability_id: str) -> bool:
    return not call.made and call.event.payload.get("capability_id") == capability_id


def _task() -> int:
    try:
        return id(asyncio.current_task())
    except RuntimeError:
        return 0  # a thread: its staged events have no order of their own


_NODE_EVENTS: Final[dict[str, Callable[[VerifyJournal, StepKey, dict[str, Any]], EventEnvelope | None]]] = {
    "kernel.node.entered": VerifyJournal._entered,
    "kernel.node.retried": VerifyJournal._retried,
    "kernel.node.completed": VerifyJournal._completed,
    "kernel.node.failed": VerifyJournal._failed,
}
