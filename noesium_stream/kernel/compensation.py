"""Undoing what a run did, when it fails or is cancelled: the last first (the saga pattern).

Every compensation is an effect with `compensates` set, under an id that is derived from what it undoes; so a
process that takes the run over finds what is undone already. The functions are found by their names: nothing
of the graph is executed.

Order is the guarantee:
 1. an effect that was under way when the run ended, and has a compensation, is decided by a person: only a
    call that was made is undone,
 2. what was completed is undone, in the reverse of the order of completion on the log, one at a time,
 3. a compensation that fails waits for a person: nothing that came before it is undone past it.
"""

from __future__ import annotations

from typing import Any

from langgraph.types import Command

from noesium_stream.clock import derived_id
from noesium_stream.errors import EffectFailedError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import Compensated, EffectOutcomeUnknown, SideEffectClass
from noesium_stream.kernel.effects import Effect, invoke
from noesium_stream.kernel.history import RunHistory
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.reference import find
from noesium_stream.kernel.values import restore

UNDER_WAY = "the run ended while it was under way"


def must_compensate(history: RunHistory) -> bool:
    """Whether something was done, or may have been done, that is undone when the run ends without success."""
    return bool(history.undoable) or bool(_unsettled(history))


class Compensation:
    """Undoes one run; `run.compensation.started` is staged or on its log. It is the `Site` of the effects."""

    attempt = 1

    def __init__(self, journal: RunJournal, agent: object) -> None:
        started = journal.history.compensation
        if started is None:
            raise ValueError("a run is undone after run.compensation.started")
        self.journal = journal
        self.history = journal.history
        self.clock = journal.clock
        self.run_id = journal.identity.run_id
        self._agent = agent
        self._started = started

    async def run(self) -> list[Compensated]:
        """Undo all; return what was done about each, in this order.

        Raises:
            FencedError, CommitUnknownError, LogClosedError: the next owner of the run goes on with it.
        """
        await self.journal.commit()
        await self._settle()
        return [await self._undo(done) for done in reversed(self.history.undoable)]

    async def _settle(self) -> None:
        history = self.history
        for effect_id in _unsettled(history):
            outcome = history.outcomes.get(effect_id)
            if outcome is None or outcome.event_id in history.resolved:
                unknown = EffectOutcomeUnknown(run_id=self.run_id, effect_id=effect_id, reason=UNDER_WAY)
                self.stage(unknown, history.requested[effect_id].event_id)
        await self.journal.until(lambda: not _unsettled(history))

    async def _undo(self, done: EventEnvelope) -> Compensated:
        payload = done.payload
        if done.event_type == "kernel.node.completed":
            entered = self.history.entered[payload["step"], payload["task_path"]].payload
            what, name = f"{payload['step']}/{payload['task_path']}", payload["node"]
            reference, effect_class = entered["compensation"], SideEffectClass.EXTERNAL
            args, kwargs = [_delta(payload.get("delta"))], {}
        else:
            requested = self.history.requested[payload["effect_id"]].payload
            what, name = payload["effect_id"], requested["name"]
            reference, effect_class = requested["compensation"], SideEffectClass(requested["effect_class"])
            arguments = requested.get("arguments") or {}
            args, kwargs = [payload.get("result"), *arguments.get("args", ())], arguments.get("kwargs", {})
        undoing = f"undo {name}"
        base = derived_id(self.run_id, "compensation", what)
        effect = Effect(self, undoing, base, effect_class, compensates=what)

        async def call(effect_id: str) -> Any:
            # Found here and not before: a function that is missing is a failure that a person decides about.
            return await invoke(find(reference, self._agent), args, kwargs, effect_id)

        try:
            await effect.outcome(call)
        except EffectFailedError:
            return Compensated(name=name, compensates=what, outcome="given_up")
        return Compensated(name=name, compensates=what, outcome="completed")

    def stage(self, event: DomainEvent, cause: str | None = None, key: str | None = None) -> EventEnvelope:
        """See `Site.stage`."""
        trace = self._started.trace.child(self.clock.token(8))
        cause = cause or self._started.event_id
        return self.journal.stage(event, trace=trace, causation_id=cause, idempotency_key=key)

    def since(self, begun: float) -> int:
        """See `Site.since`."""
        return max(0, round((self.clock.monotonic() - begun) * 1000))


def _unsettled(history: RunHistory) -> list[str]:
    """Effects with a compensation of which it is not known whether they were done."""
    return [
        effect_id
        for effect_id, requested in history.requested.items()
        if requested.payload.get("compensation") is not None and not _settled(history, effect_id)
    ]


def _settled(history: RunHistory, effect_id: str) -> bool:
    outcome = history.outcomes.get(effect_id)
    if outcome is None:
        return False
    if outcome.event_type != "effect.outcome.unknown":
        return True
    decision = history.resolved.get(outcome.event_id)
    return decision is not None and decision.payload["decision"] != "retry"


def _delta(recorded: Any) -> Any:
    """What the node changed, as its compensation is given it: the update alone of a `Command`."""
    value = restore(recorded)
    if isinstance(value, Command):
        return value.update
    if isinstance(value, list):
        return [item.update if isinstance(item, Command) else item for item in value]
    return value
