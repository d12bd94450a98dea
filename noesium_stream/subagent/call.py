"""The node of a sub-agent's run that calls the program; see `agent` for its two effects."""

from __future__ import annotations

import asyncio
from typing import Any, Final, TypedDict

from noesium_stream.errors import (
    CapabilityError,
    CapabilityInputError,
    RecordTooLargeError,
    SubagentAnswerError,
    SubagentBusyError,
    SubagentError,
    SubagentExitedError,
    SubagentProtocolError,
    SubagentStartError,
    SubagentStateError,
    SubagentTimeoutError,
)
from noesium_stream.event.standard import SideEffectClass, SubagentStateChanged
from noesium_stream.kernel import current_step
from noesium_stream.kernel.state.typed_json import check_size
from noesium_stream.kernel.step.position import Place, this_step
from noesium_stream.subagent.declared import Declared, session_of
from noesium_stream.subagent.lifecycle import Request, State
from noesium_stream.subagent.sessions import Sessions, Visit

LATE_S: Final = 5.0
"""Time after its own limit until the kernel takes the outcome of a request as unknown, in seconds."""
_KILLED: Final = (SubagentTimeoutError, SubagentExitedError, SubagentProtocolError)
_ERRORS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (
        CapabilityError,
        CapabilityInputError,
        SubagentAnswerError,
        SubagentBusyError,
        SubagentExitedError,
        SubagentProtocolError,
        SubagentStartError,
        SubagentStateError,
        SubagentTimeoutError,
    )
}


class Asked(TypedDict, total=False):
    """The state of a run: what is asked for, and its result or its error."""

    task: str
    payload: dict[str, Any]
    result: Any
    error: str
    message: str


def error_in(state: Asked) -> Exception | None:
    """The error that a run ends with."""
    if "error" not in state:
        return None
    return _ERRORS.get(state["error"], SubagentError)(state["message"])


class Call:
    """One execution of the node that calls the program."""

    def __init__(self, declared: Declared, sessions: Sessions, state: Asked) -> None:
        self._declared = declared
        self._sessions = sessions
        self._task, self._payload = state["task"], state["payload"]
        self._place = this_step()
        self._session = session_of(declared, self._payload) or self._place.journal.identity.correlation_id

    async def outcome(self) -> dict[str, Any]:
        """What the run's state has of it: a result, or an error."""
        async with self._sessions.visit(self._session) as visit:
            try:
                if not await self._ready(visit):
                    raise SubagentStartError(f"{self._declared.who} is not started again: nobody agreed.")
                return {"result": await self._ask(visit)}
            except (SubagentError, CapabilityError) as error:
                if isinstance(error, _KILLED):
                    self._emit(State.BUSY, State.TERMINATED, error.message)
                return {"error": type(error).__name__, "message": error.message}

    async def _ready(self, visit: Visit) -> bool:
        """Wait for a process; ask a person if it has failed too often; False: who did not agree."""
        declared, step = self._declared, current_step()

        async def ready() -> dict[str, Any]:
            return (await visit.ready())._asdict()

        while True:
            found = await step.effect(
                f"{declared.agent_type}:ready", ready, effect_class=SideEffectClass.IDEMPOTENT
            )
            if found["ready"]:
                if found["started"]:
                    self._emit(State.CREATED, State.RUNNING, found["reason"])
                return True
            with _given_up(self._place, visit):
                answer = await step.interrupt(
                    f"Start {declared.who} again? It has failed {found['failures']} times in a row: "
                    f"{found['reason']} (session {self._session})",
                    approvers=declared.approvers,
                    timeout=declared.patience_s,
                    on_timeout="reject",
                )
            visit.answered(answer.approved)
            if not answer.approved:
                return False

    async def _ask(self, visit: Visit) -> Any:
        declared, place = self._declared, self._place
        history = place.history
        context = {
            "run_id": place.run_id,
            "session": self._session,
            "correlation_id": place.journal.identity.correlation_id,
            "trace_id": place.entered.trace.trace_id,
            "timeout_ms": round(declared.limits.timeout_s * 1000),
            "deadline_ms": history.deadline_ms,
        }

        async def ask(task: str, payload: dict[str, Any], idempotency_key: str) -> Any:
            value = await visit.ask(Request(idempotency_key, task, payload, context))
            try:
                check_size(value, "result", declared.who)
            except RecordTooLargeError as error:
                raise SubagentAnswerError(error.message) from error
            return value

        return await current_step().effect(
            self._task,
            ask,
            self._task,
            self._payload,
            effect_class=declared.offers[self._task].capability.side_effects,
            timeout=declared.limits.timeout_s + LATE_S,
            retries=declared.retries,
        )

    def _emit(self, previous: State, state: State, reason: str) -> None:
        current_step().emit(
            SubagentStateChanged(
                run_id=self._place.run_id,
                session=self._session,
                previous=previous.value,
                state=state.value,
                reason=reason,
            )
        )


class _given_up:
    """Note that a question needs no answer any more because its run has been cancelled."""

    def __init__(self, place: Place, visit: Visit) -> None:
        self._place = place
        self._visit = visit

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is asyncio.CancelledError and self._place.history.stop is not None:
            self._visit.answered(False)
