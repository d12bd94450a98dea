"""One call of another agent: request, provider, answer, and the next provider if one may be tried.

Order is the guarantee:
 1. `capability.requested` is staged, with the call's deadline.
 2. A provider is chosen. If there is one, `capability.invoked` goes into the same commit; else the step waits
    for one, or `capability.unresolved` says why nobody was chosen.
 3. The answer is accepted once, from the provider that was chosen, and judged by its contract.
 4. If it is an error, another provider is tried where that does no harm: the first one has not begun, or the
    capability says that a second call does nothing more.

Whatever ends a call without an answer is an event of the step (`capability.unresolved`, `capability.refused`,
`capability.expired`), so that every later execution, and a replay, which does not have the registry, ends it
in the same way. The events have no commit of their own: as long as they are not on the log, nothing that
depends on them is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, NoReturn

from noesium_stream.clock import derived_id, to_rfc3339
from noesium_stream.errors import (
    CallLimitError,
    CapabilityError,
    CapabilityInputError,
    CapabilityNotFoundError,
    CapabilityOutputError,
    DeadlineExceededError,
    NoesiumError,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.value import copied
from noesium_stream.event.rules.agent_calls import output_of
from noesium_stream.event.rules.contract import Contract
from noesium_stream.event.standard import (
    CapabilityExpired,
    CapabilityRefused,
    CapabilityRequested,
    CapabilityUnresolved,
    Grant,
    ReplyTo,
    RunCancelRequested,
)
from noesium_stream.kernel.journal import Destination, Provider, TaskTopic, Wanted
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.step.budget_share import share_of
from noesium_stream.kernel.step.piecewise import expect_pieces
from noesium_stream.kernel.step.position import Place

OnUnresolved = Literal["wait", "fail"]
"""What a call does that nobody can answer: wait for a provider, or fail at once."""

MAX_PROVIDERS: Final = 3
"""Providers that are tried for one request."""

_MAX_ERROR: Final = 4_000
"""Characters of a provider's error that its caller repeats."""

_REFUSALS: Final = {
    kind.__name__: kind for kind in (CapabilityInputError, CapabilityOutputError, CallLimitError)
}
_FINAL: Final = frozenset({"RunCancelledError", DeadlineExceededError.__name__})
"""Errors of a provider after which no other one is tried."""


class Call(NamedTuple):
    """What a node asks for; `kind` is part of the call's id, `event` makes the event of the call.

    `grant`: what the called run may act with.
    """

    kind: str
    capability_id: str
    version: str | None
    event: Callable[[Mapping[str, Any], dict[str, Any]], DomainEvent]
    deadline_ms: int | None = None
    on_unresolved: OnUnresolved = "wait"
    allow_cycle: bool = False
    grant: Grant | None = None


class Invocation:
    """One call of one step, from the request to the result.

    Args:
        place: the step.
        call: what is called.
        request_id: id of the request, and of the call of its first provider.
        arguments: what is sent.
    """

    def __init__(self, place: Place, call: Call, request_id: str, arguments: dict[str, Any]) -> None:
        self._place = place
        self._journal = place.journal
        self._history = place.history
        self._call = call
        self._id = request_id
        self._arguments = arguments
        self._tried: list[str] = []

    async def result(self) -> Any:
        """Return the result.

        Raises:
            CapabilityError: there is none, and there will be none.
            DeadlineExceededError: none came by the call's deadline.
        """
        self._request()
        number, call_id = 1, self._id
        await self._send_first()
        while True:
            output, failure, began = await self._outcome(call_id)
            if failure is None:
                return output
            self._tried.append(self._history.invoked[call_id].payload.get("target_agent_id", ""))
            number += 1
            if not await self._send_again(call_id, number, failure, began):
                raise failure
            call_id = id_of(self._id, number)

    @property
    def _replays(self) -> bool:
        return self._journal.limits is None

    @property
    def _deadline_ms(self) -> int | None:
        """The deadline of the first execution."""
        sought = self._history.sought.get(self._id)
        return None if sought is None else sought.payload.get("deadline_ms")

    def _request(self) -> None:
        """1. Record what is needed."""
        if self._id in self._history.sought or self._id in self._history.invoked:
            return  # an earlier release has not recorded requests
        call = self._call
        requested = CapabilityRequested(
            run_id=self._place.run_id,
            call_id=self._id,
            capability_id=call.capability_id,
            version_range=call.version,
            deadline_ms=call.deadline_ms,
        )
        self._place.stage(requested, key=f"{self._id}/requested")

    # -- 2. the provider -----------------------------------------------------------------------------

    async def _send_first(self) -> None:
        if self._id in self._history.invoked:
            return
        ended = end_without_call(self._history, self._id)
        if ended is not None:
            raise ended
        provider = await self._provider()
        self._place.check_open()  # it has waited for its provider
        try:
            self._check(provider)
        except CapabilityError as error:
            self._refuse(self._id, error)
        await self._send(self._id, 1, provider)

    async def _provider(self) -> Provider:
        wanted = self._wanted(self._id)
        while True:
            if self._is_over():
                self._expire(self._id)
            try:
                return await self._journal.resolve(wanted)
            except CapabilityNotFoundError as error:
                # A run's grant never changes: who is denied would wait for good.
                if self._call.on_unresolved == "fail" or error.denied or self._replays:
                    self._stage_unresolved(self._id, error.considered)
                    if self._replays:
                        raise
                    raise not_found(self._call.capability_id, self._call.version, error.considered) from None
            await self._journal.until_offered(wanted, self._deadline_ms)

    def _wanted(self, call_id: str) -> Wanted:
        call, grant = self._call, self._call.grant
        return Wanted(
            self._place.run_id,
            call_id,
            call.capability_id,
            call.version,
            tuple(self._tried),
            None if grant is None or grant.roles is None else tuple(grant.roles),
            None if grant is None or grant.scopes is None else tuple(grant.scopes),
        )

    async def _send_again(self, failed_id: str, number: int, failure: NoesiumError, began: bool) -> bool:
        """4. Call another provider if that does no harm; return whether one is called."""
        history, next_id = self._history, id_of(self._id, number)
        if next_id in history.invoked:
            return True
        if number > MAX_PROVIDERS or failed_id in history.unresolved:
            return False
        if not await self._may_repeat(failed_id, failure, began):
            return False
        try:
            provider = await self._journal.resolve(self._wanted(next_id))
            self._place.check_open()  # it has waited for the answer
            self._check(provider)
        except CapabilityError as error:
            if not self._replays:
                said = getattr(error, "considered", ()) or (error.message,)
                self._stage_unresolved(failed_id, said)
            return False
        await self._send(next_id, number, provider)
        return True

    async def _may_repeat(self, failed_id: str, failure: NoesiumError, began: bool) -> bool:
        if self._replays:
            return True  # if it was called
        if isinstance(failure, DeadlineExceededError) or getattr(failure, "error_type", None) in _FINAL:
            return False
        if not began:
            return True
        contract = await self._journal.contract(self._history.invoked[failed_id].payload)
        return contract.repeatable

    def _check(self, provider: Provider) -> None:
        """Refuse a call that is one too many, or that its provider would refuse."""
        journal, limits = self._journal, self._journal.limits
        if limits is None:
            return
        identity, history = journal.identity, self._history
        limits.check_number(history.calls_made, len(history.unanswered))
        depth = identity.trace.depth + 1
        limits.check_chain(identity.path, depth, provider.agent_type, self._call.allow_cycle)
        provider.contract.check_input(self._call.capability_id, self._arguments)

    async def _send(self, call_id: str, number: int, provider: Provider) -> None:
        journal, run_id = self._journal, self._place.run_id
        identity = journal.identity
        shared = {
            "run_id": call_id,
            "capability_id": provider.capability_id,
            "version": provider.version,
            "caller_agent_id": identity.agent.agent_id,
            "caller_run_id": run_id,
            "target_agent_id": provider.agent_id,
            "target_agent_type": provider.agent_type,
            "registry_offset": provider.registry_offset,
            "attempt": number,
            "deadline_ms": self._handed_on(),
            "grant": self._call.grant,
            "path": list(identity.path),
            "allow_cycle": self._call.allow_cycle or None,
            "labels": sorted(self._place.labels()) or None,
            "budget": share_of(self._place),
            "reply_to": ReplyTo(agent_type=identity.agent.agent_type, run_id=run_id, call_id=call_id),
        }
        invoked = journal.stage(
            self._call.event(shared, self._arguments),
            trace=self._place.span(),
            causation_id=self._place.entered.event_id,
            idempotency_key=call_id,
            to=Destination(provider.agent_type, call_id),
        )
        expect_pieces(invoked)
        await journal.commit()

    def _handed_on(self) -> int | None:
        """The deadline of the called run; what undoes a run whose own has passed needs time beyond it."""
        own = None if self._history.compensation is not None else self._history.deadline_ms
        return min((due for due in (own, self._deadline_ms) if due is not None), default=None)

    # -- 3. the answer -------------------------------------------------------------------------------

    async def _outcome(self, call_id: str) -> tuple[Any, NoesiumError | None, bool]:
        """The result, or the failure; and whether the provider has begun."""
        history = self._history
        expect_pieces(history.invoked[call_id])
        await self._journal.until(
            lambda: call_id in history.answered or call_id in history.expired or self._is_over(),
            self._deadline_ms,
        )
        if call_id not in history.answered and call_id not in history.expired:
            # To say it to the provider; an answer that comes meanwhile still counts, as the log has it first.
            await self._learn_address(history.invoked[call_id])
        answer = history.answered.get(call_id)
        if answer is None:
            self._expire(call_id)
        payload = answer.payload
        if payload.get("error") is not None:
            return None, self._failure(payload), payload.get("began") is not False
        output = copied(output_of(payload))
        refused = history.refused.get(call_id)
        if refused is not None:
            return None, _refusal(refused), True
        if not self._replays:
            contract = await self._contract(history.invoked[call_id])
            try:
                contract.check_output(self._call.capability_id, output)
            except CapabilityOutputError as error:
                self._stage_refused(call_id, error)
                return None, error, True
        return output, None, True

    async def _contract(self, invoked: EventEnvelope) -> Contract:
        return await self._journal.contract(invoked.payload)

    def _failure(self, answer: Mapping[str, Any]) -> NoesiumError:
        said, kind = answer["error"], answer.get("error_type")
        if len(said) > _MAX_ERROR:
            said = f"{said[: _MAX_ERROR - 1]}…"
        message = f"{self._call.capability_id} failed at {answer['provider_agent_id']}: {said}"
        if kind == DeadlineExceededError.__name__ and self._deadline_ms is not None:
            return DeadlineExceededError(message)
        known = _REFUSALS.get(kind or "") if answer.get("began") is False else None
        return (known or CapabilityError)(message, error_type=kind)

    # -- ends without an answer ----------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether the deadline has passed; in a replay the recording says so."""
        due_ms = self._deadline_ms
        return due_ms is not None and not self._replays and self._place.clock.now_ms() >= due_ms

    def _expire(self, call_id: str) -> NoReturn:
        """End a call whose deadline has passed, and the run that was called, whose address is known."""
        invoked = self._history.invoked.get(call_id)
        due_ms = self._deadline_ms
        if call_id not in self._history.expired and due_ms is not None:
            expired = CapabilityExpired(
                run_id=self._place.run_id,
                call_id=call_id,
                capability_id=self._call.capability_id,
                deadline_ms=due_ms,
            )
            self._place.stage(expired)
            if invoked is not None:
                self._cancel(invoked)
        raise _overdue(self._call.capability_id, due_ms, invoked is not None)

    async def _learn_address(self, invoked: EventEnvelope) -> None:
        await self._journal.learn_inbox(invoked.payload["target_agent_type"])

    def _address(self, invoked: EventEnvelope) -> Destination | TaskTopic:
        """Where requests to the called run go."""
        return Destination(invoked.payload["target_agent_type"], invoked.payload["run_id"])

    def _cancel(self, invoked: EventEnvelope) -> None:
        run_id = invoked.payload["run_id"]
        self._journal.stage(
            RunCancelRequested(run_id=run_id, reason="the deadline of the call has passed"),
            trace=self._place.span(),
            causation_id=self._place.entered.event_id,
            idempotency_key=f"{run_id}/cancel",
            to=self._address(invoked),
        )

    def _refuse(self, call_id: str, error: CapabilityError) -> NoReturn:
        self._stage_refused(call_id, error)
        raise error

    def _stage_refused(self, call_id: str, error: CapabilityError) -> None:
        refused = CapabilityRefused(
            run_id=self._place.run_id,
            call_id=call_id,
            capability_id=self._call.capability_id,
            error_type=type(error).__name__,
            error=error.message,
        )
        self._place.stage(refused)

    def _stage_unresolved(self, call_id: str, considered: Sequence[str]) -> None:
        unresolved = CapabilityUnresolved(
            run_id=self._place.run_id,
            call_id=call_id,
            capability_id=self._call.capability_id,
            version_range=self._call.version,
            considered=list(considered),
        )
        self._place.stage(unresolved)


def id_of(request_id: str, number: int) -> str:
    """The id of the call of a request's `number`th provider, from 1."""
    return request_id if number == 1 else derived_id(request_id, "provider", str(number))


def has_failed(history: RunHistory, request_id: str) -> bool:
    """Whether a request has come to its end without a result."""
    last = request_id
    for number in range(2, MAX_PROVIDERS + 1):
        following = id_of(request_id, number)
        if following not in history.invoked:
            break
        last = following
    if last in history.refused or last in history.expired or last in history.unresolved:
        return True
    answer = history.answered.get(last)
    return answer is not None and answer.payload.get("error") is not None


def end_without_call(history: RunHistory, request_id: str) -> NoesiumError | None:
    """The recorded end of a request for which nobody was called."""
    if request_id in history.expired:
        payload = history.expired[request_id].payload
        return _overdue(payload["capability_id"], payload["deadline_ms"], False)
    if request_id in history.refused:
        return _refusal(history.refused[request_id])
    if request_id in history.unresolved:
        payload = history.unresolved[request_id].payload
        considered = payload.get("considered") or ()
        return not_found(payload["capability_id"], payload.get("version_range"), considered)
    return None


def not_found(
    capability_id: str, version_range: str | None, considered: Sequence[str]
) -> CapabilityNotFoundError:
    """The error of a request that nobody can answer; `considered` as in `capability.unresolved`."""
    wanted = capability_id if version_range is None else f"{capability_id} {version_range}"
    why = f": {'; '.join(considered)}" if considered else ""
    return CapabilityNotFoundError(
        f"No agent offers {wanted}{why}.",
        considered=considered,
        hint="Start a worker of the agent that provides it.",
    )


def _refusal(refused: EventEnvelope) -> CapabilityError:
    payload = refused.payload
    return _REFUSALS.get(payload["error_type"], CapabilityError)(payload["error"])


def _overdue(capability_id: str, due_ms: int | None, called: bool) -> DeadlineExceededError:
    what = f"{capability_id} was not answered" if called else f"Nobody offered {capability_id}"
    return DeadlineExceededError(f"{what} by {to_rfc3339(due_ms or 0)}, the deadline of the call.")
