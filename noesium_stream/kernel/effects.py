"""Effects: what a node does outside, written before and after (law 5).

Decision record: whatever an effect comes to is first an event, and then read from the history, live and on
replay by the same lines (`Effect.outcome`); so an execution after a crash cannot see something else. A
recorded failure is seen again by the same attempt of the node, and not by a later one, which calls anew.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
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
    RecordTooLargeError,
    StateError,
    brief,
    failure_of,
)
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.effects import awaits_decision
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.json_value import to_json
from noesium_stream.event.standard import (
    EffectCompleted,
    EffectFailed,
    EffectOutcomeUnknown,
    EffectRequested,
    SideEffectClass,
)
from noesium_stream.kernel.history import RunHistory
from noesium_stream.kernel.journal import RunJournal
from noesium_stream.kernel.place import Place
from noesium_stream.kernel.recordable import check_size, said_of
from noesium_stream.kernel.reference import Undo, check_callable, exception_of, reference, takes_key
from noesium_stream.kernel.retry import Retries
from noesium_stream.kernel.stray import failure_of_code

LEFT = "its owner gave the partition up while the call was under way, or died"

_NO_LONGER_OWNER = (FencedError, CommitUnknownError, LogClosedError)


class Site(Protocol):
    """Where effects are caused: the step of a node, or the end of a run that is undone."""

    journal: RunJournal
    history: RunHistory
    clock: Clock
    run_id: str
    attempt: int

    def stage(self, event: DomainEvent, cause: str | None = None, key: str | None = None) -> EventEnvelope:
        """Put an event into the next commit."""

    def since(self, begun: float) -> int:
        """Milliseconds since `begun`."""


@dataclass(slots=True)
class Effect:
    """One effect, under as many ids as it has recorded failures: each has its own idempotency key.

    Attributes:
        base: what the ids are derived from; the same on every execution.
        compensates: what it undoes; then its last failure waits for a person, and its result is not kept.
        part_of: what the graph undoes whose node causes it.
        graph: the call executes a graph, whose steps are on the log: that its process loses the run is none
            of its failures.
        passed_over: whether failures that an earlier attempt had seen were passed over.
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
    _raised: dict[str, Exception] = field(default_factory=dict)

    async def outcome(self, call: Callable[[str], Awaitable[Any]]) -> Any:
        """What it gives: as recorded, or by `call(effect_id)`.

        Raises:
            EffectFailedError: a person said that it failed.
            Exception: what `call` raised, now or when it was recorded.
        """
        failures = tried = 0
        while True:
            effect_id = derived_id(self.base, str(failures))
            known = self.site.history.outcomes.get(effect_id)
            if known is None:
                await self._make(effect_id, call, tried + 1)
            elif known.event_type == "effect.completed":
                return known.payload.get("result")
            elif awaits_decision(known):
                decided = await self._decision(effect_id, known)
                if decided is None:
                    continue
                decision = decided.payload
                if decision["decision"] == "result":
                    return decision.get("result")
                if decision["decision"] == "retry" and known.event_type == "effect.outcome.unknown":
                    await self._perform(effect_id, call, tried + 1, intend=True)
                    continue
                if decision["decision"] == "fail" and not self._was_earlier(known):
                    raise self._given_up(effect_id, decision)
                failures, tried = failures + 1, 0
            elif self._was_earlier(known):
                failures, tried = failures + 1, 0
            else:
                await self._until_retried(effect_id, known)
                failures, tried = failures + 1, tried + 1

    def _was_earlier(self, known: EventEnvelope) -> bool:
        """Whether an earlier attempt of the node has seen this failure (also: histories that do not say)."""
        earlier: bool = (known.payload.get("node_attempt") or 0) < self.site.attempt
        self.passed_over = self.passed_over or earlier
        return earlier

    async def _decision(self, effect_id: str, known: EventEnvelope) -> EventEnvelope | None:
        """What a person decides; None: the call itself said at last what came of it."""
        history = self.site.history
        await self.site.journal.until(
            lambda: known.event_id in history.resolved or history.outcomes.get(effect_id) is not known
        )
        return history.resolved.get(known.event_id)

    def _given_up(self, effect_id: str, decision: dict[str, Any]) -> EffectFailedError:
        reason = f": {decision['reason']}" if decision.get("reason") else "."
        return EffectFailedError(
            f"{decision['resolved_by']} decided that the effect {self.name} has failed{reason}",
            effect_id=effect_id,
        )

    async def _until_retried(self, effect_id: str, failed: EventEnvelope) -> None:
        pause_ms = failed.payload.get("retry_in_ms")
        if pause_ms is None:
            raise self._raised.get(effect_id) or _recorded_error(self.name, failed)
        # From the recorded time on: who takes the run over waits only for what is left of the pause.
        due_ms = failed.timestamp_ms + pause_ms
        await self.site.journal.until(lambda: self.site.clock.now_ms() >= due_ms, due_ms)

    async def _make(self, effect_id: str, call: Callable[[str], Awaitable[Any]], tries: int) -> None:
        known = effect_id in self.site.history.requested
        if known and self.effect_class is SideEffectClass.EXTERNAL:
            self._stage_unknown(effect_id, LEFT)
            await self.site.journal.commit()
            return
        await self._perform(effect_id, call, tries, intend=not known)

    async def _perform(
        self, effect_id: str, call: Callable[[str], Awaitable[Any]], tries: int, *, intend: bool
    ) -> None:
        """Intent, call, outcome: whoever gives the partition up in order waits for the end of it."""
        activity = self.site.journal.activity
        await activity.may_begin()
        # A graph's own steps and effects are waited for, one by one.
        with nullcontext() if self.graph else activity.calling():
            answered = self.site.history.outcomes.get(effect_id)
            if intend:
                await self._intend(effect_id)
            if answered is None and effect_id in self.site.history.outcomes:
                return  # a journal that replays has what came of it
            await self._call(effect_id, call, tries)

    async def _intend(self, effect_id: str) -> None:
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
        )
        # The function's key stays the same when it is called again; each event of it has one of its own.
        answered = self.site.history.outcomes.get(effect_id)
        key = effect_id if answered is None else derived_id(effect_id, "again", answered.event_id)
        self.site.stage(event, key=key)
        await self.site.journal.commit()

    async def _call(self, effect_id: str, call: Callable[[str], Awaitable[Any]], tries: int) -> None:
        activity = self.site.journal.activity
        if activity.assured is not None and self.effect_class is SideEffectClass.EXTERNAL:
            # The process may have stood still since its intent: somebody else has the run then, and a person
            # may have decided already. Nothing gives way between this and the call.
            await activity.assured()
        begun = self.site.clock.monotonic()
        activity.changes += 1
        # What may have been done outside, and must not be done again: not plainly failed.
        perhaps = None
        task = asyncio.current_task()
        limit = asyncio.timeout(self.timeout.total_seconds() if self.timeout else None)
        try:
            with activity.working() if self.timeout else nullcontext():
                async with limit:
                    value = await call(effect_id)
            perhaps = "it was done, and its result cannot be recorded"
            result = self._result(value)
        except BaseException as raised:
            error = failure_of_code(raised, task)
            if error is None or (self.graph and isinstance(error, _NO_LONGER_OWNER)):
                raise
            if limit.expired():
                perhaps = f"it had not ended after {self.timeout}"
            elif perhaps is not None:
                perhaps = f"{perhaps}: {brief(error)}"
            if perhaps is not None and self.effect_class is SideEffectClass.EXTERNAL:
                self._stage_unknown(effect_id, perhaps)
            else:
                self._stage_failed(effect_id, error, tries, begun, type(raised))
            if error is raised:
                self._raised[effect_id] = error
            await self.site.journal.commit()
            return
        done = EffectCompleted(
            run_id=self.site.run_id,
            effect_id=effect_id,
            result=result,
            duration_ms=self.site.since(begun),
        )
        self.site.stage(done, self._cause(effect_id))
        # On its way at once: the node may go on for hours, and only the record says that it was done.
        self.site.journal.flush()

    def _cause(self, effect_id: str) -> str:
        return self.site.history.requested[effect_id].event_id

    def _result(self, value: Any) -> Any:
        if self.compensates is not None:
            return None  # nobody asks for it, and it must not stand in the way
        with said_of(f"The effect {self.name}"):
            result = to_json(value, "result")
        check_size(result, "result", f"The effect {self.name}")
        return result

    def _stage_unknown(self, effect_id: str, reason: str) -> None:
        event = EffectOutcomeUnknown(
            run_id=self.site.run_id, effect_id=effect_id, reason=reason, node_attempt=self.site.attempt
        )
        self.site.stage(event, self._cause(effect_id))

    def _stage_failed(
        self, effect_id: str, error: Exception, tries: int, begun: float, kind: type[BaseException]
    ) -> None:
        pause_ms = None
        if self.retries is not None and not isinstance(error, StateError | RecordTooLargeError):
            chance = random.Random(effect_id).random()
            pause_ms = self.retries.pause_ms(tries, error, chance)
        error_type, message = failure_of(error)
        failed = EffectFailed(
            run_id=self.site.run_id,
            effect_id=effect_id,
            error_type=error_type,
            message=message,
            duration_ms=self.site.since(begun),
            error_class=f"{kind.__module__}:{kind.__qualname__}",
            node_attempt=self.site.attempt,
            retry_in_ms=pause_ms,
            awaits_decision=self.compensates is not None and pause_ms is None,
        )
        self.site.stage(failed, self._cause(effect_id))


class Effects:
    """The effects of one step."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def perform(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
        timeout: timedelta | None = None,
        retries: Retries | None = None,
        compensate: Undo | None = None,
        **kwargs: Any,
    ) -> Any:
        """See `Step.effect`."""
        with said_of(f"The effect {name}"):
            arguments = to_json({"args": args, "kwargs": kwargs}, "arguments")
        check_size(arguments, "arguments", f"The effect {name}")
        undo = None
        if compensate is not None and self._place.undoes is None:
            undo = reference(compensate, f"the effect {name}")
            check_callable(compensate, f"the effect {name}", None, *args, **kwargs)
        base = self._place.call_id("effect", name, arguments)
        await self._place.before_call(base, f"a call of {name} with other arguments or at another place")
        effect = Effect(
            self._place,
            name,
            base,
            effect_class,
            arguments,
            timeout,
            retries,
            undo,
            part_of=self._place.undoes,
        )
        try:
            return await effect.outcome(lambda effect_id: invoke(function, args, kwargs, effect_id))
        finally:
            self._place.tried_again = self._place.tried_again or effect.passed_over


async def invoke(
    function: Callable[..., Any], args: tuple[Any, ...] | list[Any], kwargs: dict[str, Any], effect_id: str
) -> Any:
    """Call a function, a sync one in a thread; with the idempotency key if it has that parameter."""
    if takes_key(function):
        kwargs = {**kwargs, "idempotency_key": effect_id}
    call = partial(function, *args, **kwargs)
    if inspect.iscoroutinefunction(call):
        return await call()
    value = await asyncio.to_thread(call)
    return await value if inspect.isawaitable(value) else value


def _recorded_error(name: str, failed: EventEnvelope) -> Exception:
    """The error that is on the log, of its own class if that can be found; without its attributes."""
    payload = failed.payload
    error = exception_of(payload.get("error_class") or "", payload["message"])
    return error or EffectFailedError(
        f"The effect {name} failed: {payload['error_type']}: {payload['message']}",
        effect_id=payload["effect_id"],
    )
