"""Effects: a node's external actions, recorded before and after (law 5).

Decision record: every outcome of an effect is first an event, and then read from the history, live and on
replay by the same lines (`Effect.outcome`), so an execution after a crash cannot see anything else. The same
attempt of the node sees a recorded failure again; a later attempt calls anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from noesium_stream.clock import Clock, derived_id
from noesium_stream.errors import (
    CommitUnknownError,
    EffectFailedError,
    FencedError,
    LogClosedError,
    OutcomeUnknownError,
    RecordTooLargeError,
    StateError,
    brief,
    failure_of,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.value import copied, to_json
from noesium_stream.event.rules.effect_ledger import awaits_decision
from noesium_stream.event.standard import (
    EffectCompleted,
    EffectFailed,
    EffectOutcomeUnknown,
    EffectReported,
    EffectRequested,
    SideEffectClass,
)
from noesium_stream.kernel.error_classes import error_of, is_declared, recorded_name
from noesium_stream.kernel.failure_of_code import failure_of_code
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.retry import Retries
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.state.typed_json import check_size, said_of
from noesium_stream.kernel.step.effect_call import Ended, carry, make, make_assured, stay
from noesium_stream.kernel.step.told_effect import Told

LEFT = "its owner gave the partition up while the call was under way, or died"
NOT_BEGUN = "its owner gave the partition up before the call began"

_NOT_BEGUN_TYPE = "NotBegun"
_NO_LONGER_OWNER = (FencedError, CommitUnknownError, LogClosedError)


def as_it_is(value: Any) -> Any:
    """Return a value."""
    return value


class Site(Protocol):
    """The origin of effects: the step of a node, or the end of a run that is undone."""

    journal: RunJournal
    history: RunHistory
    clock: Clock
    run_id: str
    attempt: int

    def stage(self, event: DomainEvent, cause: str | None = None, key: str | None = None) -> EventEnvelope:
        """Stage an event for the next commit."""

    def since(self, begun: float) -> int:
        """Milliseconds since `begun`."""


@dataclass(slots=True)
class Effect:
    """One effect, under as many ids as it has recorded failures: each has its own idempotency key.

    Attributes:
        base: the base of its ids; the same on every execution.
        compensates: the part that it undoes; then its last failure waits for a person, and its result is
            dropped.
        part_of: the part that is undone by the graph whose node causes it.
        graph: the call executes a graph, whose steps are on the log: if its process loses the run, that is
            not a failure of the call.
        passed_over: whether it skipped failures that an earlier attempt had seen.
        told: what tells of it and lets its calls begin, if it is a tool call.
        from_person: makes its result of what a person says that it has given.
    """

    site: Site
    name: str
    base: str
    effect_class: SideEffectClass
    arguments: Any = None
    timeout: timedelta | None = None
    retries: Retries | None = None
    compensation: str | None = None
    compensates: str | None = None
    part_of: str | None = None
    graph: bool = False
    passed_over: bool = False
    told: Told | None = None
    from_person: Callable[[Any], Any] = as_it_is
    _raised: dict[str, Exception] = field(default_factory=dict)

    async def outcome(self, call: Callable[[str], Awaitable[Any]]) -> Any:
        """Its result: as recorded, or by `call(effect_id)`.

        Raises:
            EffectFailedError: a person decided that it failed.
            Exception: the error of `call`, raised now or recorded before.
        """
        failures = tried = 0
        while True:
            effect_id = derived_id(self.base, str(failures))
            refused = None if self.told is None else await self.told.passed(effect_id, self.effect_class)
            known = self.site.history.outcomes.get(effect_id)
            if known is None:
                await self._make(effect_id, call, tried + 1, refused)
            elif known.event_type == "effect.completed":
                self._tell(effect_id, known)
                return copied(known.payload.get("result"))  # the node may change it
            elif awaits_decision(known):
                decided = await self._decision(effect_id, known, tried + 1)
                if decided is None:
                    continue
                decision = decided.payload
                if decision["decision"] == "result":
                    return self.from_person(copied(decision.get("result")))
                if self._repeats(known, decision):
                    await self._perform(effect_id, call, tried + 1, intend=True)
                    continue
                if decision["decision"] == "fail" and not self._was_earlier(known):
                    raise self._given_up(effect_id, decision)
                failures, tried = failures + 1, 0
            elif self._was_earlier(known):
                self._tell(effect_id, known)
                failures, tried = failures + 1, 0
            else:
                self._tell(effect_id, known)
                await self._until_retried(effect_id, known)
                failures, tried = failures + 1, tried + 1

    @staticmethod
    def _repeats(outcome: EventEnvelope, decision: dict[str, Any]) -> bool:
        """Whether a person wants a call of unknown outcome to be made again, under the same key."""
        return decision["decision"] == "retry" and outcome.event_type == "effect.outcome.unknown"

    def _tell(self, effect_id: str, outcome: EventEnvelope) -> None:
        if self.told is not None:
            self.told.outcome(effect_id, outcome)

    def _was_earlier(self, known: EventEnvelope) -> bool:
        """Whether an earlier attempt of the node has seen this failure (True if attempts are unknown)."""
        earlier: bool = (known.payload.get("node_attempt") or 0) < self.site.attempt
        self.passed_over = self.passed_over or earlier
        return earlier

    async def _decision(self, effect_id: str, known: EventEnvelope, tries: int) -> EventEnvelope | None:
        """A person's decision; None: the call itself has reported its outcome at last."""
        history = self.site.history
        await self.site.journal.until(
            lambda: (
                known.event_id in history.resolved
                or history.outcomes.get(effect_id) is not known
                or (known.event_type == "effect.outcome.unknown" and effect_id in history.reported)
            )
        )
        decided = history.resolved.get(known.event_id)
        if decided is None and history.outcomes.get(effect_id) is known:
            self._stage_reported(effect_id, tries)
            await self.site.journal.commit()
        if decided is not None and self.told is not None and not self._repeats(known, decided.payload):
            self.told.decided(effect_id, decided.payload, self.from_person)
        return decided

    def _given_up(self, effect_id: str, decision: dict[str, Any]) -> EffectFailedError:
        reason = f": {decision['reason']}" if decision.get("reason") else "."
        return EffectFailedError(
            f"{decision['resolved_by']} decided that the effect {self.name} has failed{reason}",
            effect_id=effect_id,
        )

    async def _until_retried(self, effect_id: str, failed: EventEnvelope) -> None:
        pause_ms = failed.payload.get("retry_in_ms")
        if pause_ms is None:
            raised = self._raised.get(effect_id)
            if raised is not None and is_declared(type(raised)):
                raise raised
            raise _recorded_error(self.name, failed) from raised
        # Counted from the recorded time: the next owner waits only for the rest of the pause.
        due_ms = failed.timestamp_ms + pause_ms
        journal = self.site.journal
        await journal.until(lambda: journal.has_passed(due_ms), due_ms)

    async def _make(
        self,
        effect_id: str,
        call: Callable[[str], Awaitable[Any]],
        tries: int,
        refused: Exception | None,
    ) -> None:
        known = effect_id in self.site.history.requested
        if known and self.effect_class is SideEffectClass.EXTERNAL:
            await self._left_behind(effect_id, tries)
        elif refused is not None:
            await self._refuse(effect_id, tries, refused, known=known)
        else:
            await self._perform(effect_id, call, tries, intend=not known)

    async def _left_behind(self, effect_id: str, tries: int) -> None:
        """Handle an effect that was begun and is not called again. If another process called it, wait until
        that call must have ended: it may still report the outcome. Without a timeout nobody can know that
        moment, so the outcome is unknown at once; a report that arrives before a person decides still counts.
        """
        site = self.site
        due_ms = site.history.requested[effect_id].payload.get("deadline_ms")
        if due_ms is not None and effect_id not in site.journal.activity.begun:
            await site.journal.until(
                lambda: effect_id in site.history.reported or site.clock.now_ms() >= due_ms, due_ms
            )
        if effect_id in site.history.reported:
            self._stage_reported(effect_id, tries)
        else:
            self._stage_unknown(effect_id, LEFT)
        await site.journal.commit()

    async def _perform(
        self, effect_id: str, call: Callable[[str], Awaitable[Any]], tries: int, *, intend: bool
    ) -> None:
        """Record the intent, call, record the outcome; an orderly release waits for the end."""
        activity = self.site.journal.activity
        await activity.may_begin()
        turn = nullcontext() if self.told is None else self.told.gate.turn()
        # The steps and effects of a graph are waited for one by one.
        async with turn:
            await self._in_turn(effect_id, call, tries, intend=intend)

    async def _in_turn(
        self, effect_id: str, call: Callable[[str], Awaitable[Any]], tries: int, *, intend: bool
    ) -> None:
        with nullcontext() if self.graph else self.site.journal.activity.calling():
            answered = self.site.history.outcomes.get(effect_id)
            if intend:
                try:
                    await self._intend(effect_id)
                except BaseException:
                    self._leave_uncalled(effect_id)
                    raise
            if answered is None and effect_id in self.site.history.outcomes:
                return  # a journal that replays has the outcome
            await self._call(effect_id, call, tries)

    async def _intend(self, effect_id: str) -> None:
        self._stage_intent(effect_id)
        await self.site.journal.commit()

    def _stage_intent(self, effect_id: str, refused: Exception | None = None) -> None:
        event = EffectRequested(
            run_id=self.site.run_id,
            effect_id=effect_id,
            name=self.name,
            effect_class=self.effect_class.value,
            fingerprint=self.base,
            idempotency_key=effect_id,
            arguments=self.arguments,
            compensation=self.compensation,
            compensates=self.compensates or self.part_of,
            deadline_ms=self._deadline_ms(),
        )
        self.site.journal.activity.begun.add(effect_id)
        # A repeated call keeps the function's key; each event of it has a key of its own.
        answered = self.site.history.outcomes.get(effect_id)
        key = effect_id if answered is None else derived_id(effect_id, "again", answered.event_id)
        if self.told is not None and answered is None:
            self.told.begun(effect_id, refused)
        self.site.stage(event, key=key)

    def _deadline_ms(self) -> int | None:
        if self.timeout is None or self.effect_class is not SideEffectClass.EXTERNAL or self.graph:
            return None
        return self.site.clock.now_ms() + max(0, round(self.timeout.total_seconds() * 1000))

    async def _call(self, effect_id: str, call: Callable[[str], Awaitable[Any]], tries: int) -> None:
        begun = self.site.clock.monotonic()
        self.site.journal.activity.changes += 1
        # It may have been done outside, and must not be repeated: this is not a plain failure.
        perhaps = None
        task = asyncio.current_task()
        ended = await self._made(effect_id, call, begun)
        if not ended.made and ended.raised is not None:
            self._leave_uncalled(effect_id)
            raise ended.raised
        try:
            if ended.raised is not None:
                raise ended.raised
            perhaps = "it was done, and its result cannot be recorded"
            result = self._result(ended.value)
        except BaseException as raised:
            error = failure_of_code(raised, task)
            if error is None or (self.graph and isinstance(error, _NO_LONGER_OWNER)):
                raise
            self._fail(effect_id, ended, error, perhaps, tries, begun, type(raised))
            if error is raised and not ended.expired:
                self._raised[effect_id] = error
            await self.site.journal.commit()
            return
        done = EffectCompleted(
            run_id=self.site.run_id,
            effect_id=effect_id,
            result=result,
            duration_ms=self.site.since(begun),
        )
        self._tell(effect_id, self.site.stage(done, self._cause(effect_id)))
        # Send it at once: the node may go on for hours, and only the record says that it was done.
        self.site.journal.flush()

    def _fail(
        self,
        effect_id: str,
        ended: Ended,
        error: Exception,
        perhaps: str | None,
        tries: int,
        begun: float,
        kind: type[BaseException],
    ) -> None:
        """Stage the failure of a call, or that nobody knows what it did."""
        if ended.expired:
            perhaps = f"it had not ended after {self.timeout}"
        elif perhaps is not None:
            perhaps = f"{perhaps}: {brief(error)}"
        elif isinstance(error, OutcomeUnknownError):
            perhaps = brief(error)
        if perhaps is not None and self.effect_class is SideEffectClass.EXTERNAL:
            self._stage_unknown(effect_id, perhaps)
            if ended.expired and self.told is not None:
                self.told.timed_out(effect_id)
            return
        if ended.expired and self.told is not None:
            error = self.told.telling.limit_error()
            kind = type(error)
            self._raised[effect_id] = error
        self._stage_failed(effect_id, error, tries, begun, kind)

    async def _made(self, effect_id: str, call: Callable[[str], Awaitable[Any]], begun: float) -> Ended:
        activity = self.site.journal.activity
        making, timeout_s = partial(call, effect_id), self.timeout.total_seconds() if self.timeout else None
        with activity.working() if self.timeout else nullcontext():
            if self.graph:
                return await stay(make(making, timeout_s))
            assured = make_assured(making, timeout_s, activity)
            if self.effect_class is not SideEffectClass.EXTERNAL:
                return await stay(assured)
            ended = await carry(assured, activity, partial(self._report, effect_id, begun))
            self._report(effect_id, begun, ended)  # the run may be given up while this task has not ended
            return ended

    def _cause(self, effect_id: str) -> str:
        return self.site.history.requested[effect_id].event_id

    def _result(self, value: Any) -> Any:
        if self.compensates is not None:
            return None  # nobody reads it, and it must not stand in the way
        with said_of(f"The effect {self.name}"):
            result = to_json(value, "result")
        check_size(result, "result", f"The effect {self.name}")
        return result

    def _stage_unknown(self, effect_id: str, reason: str) -> None:
        event = EffectOutcomeUnknown(
            run_id=self.site.run_id, effect_id=effect_id, reason=reason, node_attempt=self.site.attempt
        )
        self.site.stage(event, self._cause(effect_id))

    def _pause_ms(self, effect_id: str, error: Exception, tries: int) -> int | None:
        if self.retries is None or isinstance(error, StateError | RecordTooLargeError):
            return None
        return self.retries.pause_ms(tries, error, random.Random(effect_id).random())

    def _stage_failed(
        self, effect_id: str, error: Exception, tries: int, begun: float, kind: type[BaseException]
    ) -> None:
        pause_ms = self._pause_ms(effect_id, error, tries)
        error_type, message = failure_of(error)
        failed = EffectFailed(
            run_id=self.site.run_id,
            effect_id=effect_id,
            error_type=error_type,
            message=message,
            duration_ms=self.site.since(begun),
            error_class=recorded_name(kind),
            node_attempt=self.site.attempt,
            retry_in_ms=pause_ms,
            awaits_decision=self.compensates is not None and pause_ms is None,
        )
        self._tell(effect_id, self.site.stage(failed, self._cause(effect_id)))

    async def _refuse(self, effect_id: str, tries: int, refused: Exception, *, known: bool) -> None:
        """Record a refused call: its intent, the refusal and the failure in one commit; nothing is called."""
        begun = self.site.clock.monotonic()
        if not known:
            self._stage_intent(effect_id, refused)
        if effect_id not in self.site.history.outcomes:  # else a journal that replays has the outcome
            self.retries = None
            self._stage_failed(effect_id, refused, tries, begun, type(refused))
            self._raised[effect_id] = refused
        await self.site.journal.commit()

    # -- calls that outlast the stay of their run ----------------------------------------------------

    def _leave_uncalled(self, effect_id: str) -> None:
        """Note, for the next owner, that this call will never begin: it is to be made at once."""
        if self._is_first_call(effect_id):
            self.site.journal.activity.uncalled[effect_id] = EffectFailed(
                run_id=self.site.run_id,
                effect_id=effect_id,
                error_type=_NOT_BEGUN_TYPE,
                message=NOT_BEGUN,
                duration_ms=0,
                node_attempt=self.site.attempt,
                retry_in_ms=0,
            )

    def _is_first_call(self, effect_id: str) -> bool:
        """Whether nothing was called under this key before: then a call that never began changes nothing.

        One that a person has decided to repeat is still of unknown outcome, and keeps its key.
        """
        requested = self.site.history.requested.get(effect_id)
        return (
            self.effect_class is SideEffectClass.EXTERNAL
            and requested is not None
            and requested.idempotency_key == effect_id
            and effect_id not in self.site.history.outcomes
        )

    def _report(self, effect_id: str, begun: float, ended: Ended) -> None:
        """Report the end of a call to the run's next owner, if it is known."""
        heir, requested = self.site.journal.activity.heir, self.site.history.requested[effect_id]
        if heir is None:
            return
        about = partial(
            EffectReported,
            run_id=self.site.run_id,
            effect_id=effect_id,
            intent_id=requested.event_id,
            duration_ms=self.site.since(begun),
        )
        raised = ended.raised
        if not ended.made:
            if self._is_first_call(effect_id):
                heir.report(about(outcome="not_begun"))
            return
        if raised is None:
            with suppress(StateError, RecordTooLargeError):  # else it is unknown, as it would be here
                heir.report(about(outcome="completed", result=self._result(ended.value)))
            return
        error = failure_of_code(raised, None)
        if error is None or ended.expired or isinstance(error, (*_NO_LONGER_OWNER, OutcomeUnknownError)):
            return
        error_type, message = failure_of(error)
        kind = recorded_name(type(raised))
        heir.report(about(outcome="failed", error_type=error_type, message=message, error_class=kind))

    def _stage_reported(self, effect_id: str, tries: int) -> None:
        report = self.site.history.reported[effect_id]
        event = outcome_of(report)
        if isinstance(event, EffectFailed):
            error = _recorded_error(self.name, report)
            not_begun = report.payload["outcome"] == "not_begun"
            pause_ms = 0 if not_begun else self._pause_ms(effect_id, error, tries)
            said = {
                "node_attempt": self.site.attempt,
                "retry_in_ms": pause_ms,
                "awaits_decision": self.compensates is not None and pause_ms is None,
            }
            event = event.model_copy(update=said)
        self._tell(effect_id, self.site.stage(event, report.event_id))


def outcome_of(report: EventEnvelope) -> EffectCompleted | EffectFailed:
    """The outcome in an `effect.reported`, as the run's owner writes it."""
    payload = report.payload
    about = {name: payload[name] for name in ("run_id", "effect_id", "duration_ms")}
    if payload["outcome"] == "completed":
        return EffectCompleted(**about, result=payload.get("result"))
    if payload["outcome"] == "not_begun":
        return EffectFailed(**about, error_type=_NOT_BEGUN_TYPE, message=NOT_BEGUN)
    return EffectFailed(
        **about,
        error_type=payload.get("error_type") or "Exception",
        message=payload.get("message") or "",
        error_class=payload.get("error_class"),
    )


def _recorded_error(name: str, failed: EventEnvelope) -> Exception:
    """The error on the log, of its own class if code here declares that; without its attributes."""
    payload = failed.payload
    about = payload["error_type"], payload["message"], payload["effect_id"]
    return error_of(name, *about, payload.get("error_class"))
