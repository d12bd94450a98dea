"""Executes a run from its input to its terminal event: result, failure, cancellation or expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final, Literal, NamedTuple

from langchain_core.runnables import RunnableConfig

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import (
    CheckpointError,
    DeadlineExceededError,
    PermissionDeniedError,
    failure_of,
    hint_of,
)
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.rules.agent_calls import CALLS, answer_to, input_of
from noesium_stream.event.rules.slices import DOMAIN
from noesium_stream.event.sealing.seal import is_erased
from noesium_stream.event.standard import (
    Compensated,
    CompensationStarted,
    GraphRef,
    RunCancelled,
    RunCancelRequested,
    RunCompleted,
    RunDeadlinePassed,
    RunFailed,
    TaskRequested,
)
from noesium_stream.kernel import NO_LONGER_OWNER, Destination, TaskTopic
from noesium_stream.kernel.compensation.saga import Compensation, left_under_way, must_compensate
from noesium_stream.kernel.failure_location import where_of
from noesium_stream.kernel.failure_of_code import failure_of_code
from noesium_stream.kernel.journal import FactTopic
from noesium_stream.kernel.state.typed_json import check_size, said_of
from noesium_stream.worker.runs.fork_history import begin_fork
from noesium_stream.worker.runs.pinned_graph import move
from noesium_stream.worker.runs.refused_commands import (
    contract_of_call,
    refusal,
    refused_call,
    refused_command,
)
from noesium_stream.worker.runs.run_session import RunSession
from noesium_stream.worker.runs.time_to_live import expiry

_SAID: Final = {
    "failed": "failed",
    "cancelled": "was cancelled",
    RunFailed.TYPE: "failed",
    RunCancelled.TYPE: "was cancelled",
    RunCompleted.TYPE: "has ended without its answer",
}
"""How a run ends, or what its compensation is for, as those are told whose answers it does not wait for."""


async def run_to_end(agent: BaseGraphicAgent, session: RunSession, graph: GraphRef) -> bool:
    """Execute or resume a run; return whether it has ended.

    False: this process does not own the partition any more, or is stopping; the next owner resumes the run.

    Raises:
        MigrationError: the run is pinned to another version of the graph and cannot be moved to `graph`.
    """
    try:
        return await _attempt(agent, session, graph)
    except asyncio.CancelledError:
        if session.history.stop is None:
            return False
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()  # this request is handled; a later cancellation is a new one
        return await _stop(agent, session)
    except NO_LONGER_OWNER:
        return False


async def _attempt(agent: BaseGraphicAgent, session: RunSession, graph: GraphRef) -> bool:
    history = session.history
    started = history.started
    if started is None:
        raise ValueError("a run is executed after run.started")
    session.limits = agent.call_limits
    if history.compensation is not None:
        return await _undo_and_end(agent, session, history.compensation)
    if history.stop is not None:
        return await _stop(agent, session)
    if await _end_unbegun(agent, session, started):
        return True
    if history.pinned != graph.model_dump():
        await move(agent, session)
    task = asyncio.current_task()
    try:
        result = await _execute(agent, session, started.payload)
        completed = RunCompleted(run_id=session.run_id, result=result, duration_ms=_duration(session))
        return await _end(agent, session, completed, result)
    except NO_LONGER_OWNER:
        raise
    except BaseException as raised:
        error = failure_of_code(raised, task)
        if error is None:
            raise
        session.drop_staged()
        history.withdraw_end()  # a result may have been too large
        why = _Why("failed", *failure_of(error), hint_of(error), where_of(error))
    return await _end_without_result(agent, session, why, history.last_event_id)


async def _end_unbegun(agent: BaseGraphicAgent, session: RunSession, started: EventEnvelope) -> bool:
    """End a run whose command is not executed; return whether that is so."""
    entered = bool(session.history.entered)
    expired = expiry(session.command, started)
    if expired is not None and not entered:
        return await _end(agent, session, expired, None, f"the command expired after {expired.ttl_ms} ms")
    refused = refused_command(session.command, started)
    if refused is not None:
        denied = PermissionDeniedError.__name__
        return await _end(agent, session, refused, None, refused.message, denied)
    wrong = None if entered else await refused_call(agent, session)
    if wrong is not None:
        refused = refusal(session.command, started, wrong.message)
        return await _end(agent, session, refused, None, wrong.message, type(wrong).__name__)
    return False


async def _execute(agent: BaseGraphicAgent, session: RunSession, started: dict[str, Any]) -> Any:
    """Execute the graph from where the journal ends; return the run's result, as JSON values."""
    initial, migrated = None, session.history.migrated
    if migrated is not None and is_erased(migrated):
        raise CheckpointError(f"The state of run {session.run_id} is erased: it cannot go on.")
    if migrated is None:  # else it starts with the state that its migration recorded
        asked = input_of(session.command.payload)
        initial = agent.initial_state(asked, started.get("capability_id"))
        if started.get("forked_from") is not None:
            initial = await begin_fork(agent.context.log, agent.agent_type, session, initial)
    limit: RunnableConfig = {"recursion_limit": agent.max_supersteps}
    final = await agent.durable.execute(session, initial, limit, agent.segments)
    with said_of("The run"):
        result = to_json(agent.result(final), "result")
    check_size(result, "result", "The run")
    if session.command.event_type in CALLS:
        contract = await contract_of_call(agent, session)
        contract.check_output(session.command.payload["capability_id"], result)
    return result


class _Why(NamedTuple):
    """The reason why a run ends without a result."""

    cause: Literal["failed", "cancelled"]
    error_type: str
    message: str
    hint: str | None = None
    where: str | None = None


async def _end_without_result(
    agent: BaseGraphicAgent, session: RunSession, why: _Why, caused_by: str | None
) -> bool:
    """Compensate the run's effects if necessary, and end the run.

    With compensation, `run.compensation.started` is the point of no return: a new owner goes on from there,
    and a later request to cancel the run changes nothing.
    """
    if _is_to_stop(session):
        return await _stop(agent, session)
    if not must_compensate(session.history):
        return await _end_for(agent, session, why, [])
    children = await _open_children(session)
    if _is_to_stop(session):
        return await _stop(agent, session)
    _cancel(session, children, why.cause, caused_by)  # compensation may take long, and may call others
    started = CompensationStarted(run_id=session.run_id, **why._asdict())
    trace = session.identity.trace.child(session.clock.token(8))
    key = f"{session.run_id}/compensation"
    return await _undo_and_end(
        agent, session, session.stage(started, trace=trace, causation_id=caused_by, idempotency_key=key)
    )


async def _undo_and_end(agent: BaseGraphicAgent, session: RunSession, started: EventEnvelope) -> bool:
    compensated = await Compensation(
        session, agent, agent.versions.reaches, input_of(session.command.payload)
    ).run()
    payload = started.payload
    said = payload["cause"], payload["error_type"], payload["message"]
    why = _Why(*said, payload.get("hint"), payload.get("where"))
    return await _end_for(agent, session, why, compensated)


async def _end_for(
    agent: BaseGraphicAgent, session: RunSession, why: _Why, compensated: list[Compensated]
) -> bool:
    stop = session.history.stop
    ended: RunFailed | RunCancelled
    if why.cause == "failed":
        ended = RunFailed(
            run_id=session.run_id,
            error_type=why.error_type,
            message=why.message,
            duration_ms=_duration(session),
            compensated=compensated,
            hint=why.hint,
            where=why.where,
        )
    elif stop is None:
        raise ValueError("nobody asked for the run to be cancelled")
    else:
        ended = RunCancelled(
            run_id=session.run_id,
            reason=stop.payload.get("reason"),
            requested_by=stop.producer.agent_id,
            duration_ms=_duration(session),
            compensated=compensated,
        )
    return await _end(agent, session, ended, None, why.message, why.error_type)


def _is_to_stop(session: RunSession) -> bool:
    """Whether a record that ends the run was accepted and its task does not know of it yet.

    That record counts: it is on the log, or on its way there, before all that the run may still stage.
    """
    history = session.history
    ending = history.compensation or history.terminal
    return history.stop is not None and ending is None and not session.stopping


async def _stop(agent: BaseGraphicAgent, session: RunSession) -> bool:
    session.cancelling = session.stopping = True
    try:
        if session.history.terminal is not None:
            await session.commit()  # a terminal event is on its way to the log already: the first one wins
            return True
        if session.history.compensation is not None:
            return await _undo_and_end(agent, session, session.history.compensation)
        session.drop_staged()
        stop = session.history.stop
        if stop is None:
            raise ValueError("nothing asks for the run to end")
        if stop.event_type == RunDeadlinePassed.TYPE:
            said = f"the run had not ended by {to_rfc3339(stop.payload['deadline_ms'])}, its deadline"
            why = _Why("failed", DeadlineExceededError.__name__, said)
            return await _end_without_result(agent, session, why, stop.event_id)
        why = _Why("cancelled", "RunCancelledError", "the run was cancelled")
        return await _end_without_result(agent, session, why, stop.event_id)
    except NO_LONGER_OWNER:
        return False


async def _open_children(session: RunSession) -> list[EventEnvelope]:
    """The open calls of a run that it has not cancelled yet, once their inboxes are known."""
    history = session.history
    known: set[tuple[str, bool]] = set()
    while True:
        waiting = [call for call_id, call in history.invoked.items() if call_id not in history.answered]
        calls = [call for call in waiting if call.payload["run_id"] not in history.cancelled]
        unknown = {_receiver(call) for call in calls} - known
        if not unknown:
            return calls
        for name, is_task in unknown:  # meanwhile one may be answered, and another one called
            await (session.learn_tasks(name) if is_task else session.learn_inbox(name))
        known |= unknown


def _receiver(call: EventEnvelope) -> tuple[str, bool]:
    """Who hears that a call is cancelled: an agent type, or with True whoever has a capability's tasks."""
    if call.event_type == TaskRequested.TYPE:
        return call.payload["capability_id"], True
    return call.payload["target_agent_type"], False


def _cancel(session: RunSession, calls: Sequence[EventEnvelope], how: str, cause: str | None) -> None:
    """Cancel the runs of these calls: nobody waits for their answers any more."""
    for call in calls:
        payload = call.payload
        child = payload["run_id"]
        name, is_task = _receiver(call)
        session.stage(
            RunCancelRequested(run_id=child, reason=f"its caller {session.run_id} {_SAID[how]}"),
            trace=session.identity.trace.child(session.clock.token(8)),
            causation_id=cause,
            idempotency_key=f"{child}/cancel",
            to=TaskTopic(name, child) if is_task else Destination(name, child),
        )


async def _end(
    agent: BaseGraphicAgent,
    session: RunSession,
    event: DomainEvent,
    output: object,
    error: str | None = None,
    error_type: str | None = None,
) -> bool:
    """Commit the terminal event and the answer to the caller. The first terminal event wins (law 3)."""
    history = session.history
    started = history.started
    if history.terminal is not None or started is None:
        await session.commit()
        return True
    trace = session.identity.trace.child(session.clock.token(8))
    terminal_cause = history.last_event_id
    reply_to = started.payload.get("reply_to")
    if reply_to is not None:
        await session.learn_inbox(reply_to["agent_type"])
    if history.spending.slices.asked:
        await session.learn_facts(DOMAIN)
    children = await _open_children(session)
    if _is_to_stop(session):
        return await _stop(agent, session)
    # Where the end is refused, its last step is not: two submissions, which share a commit.
    session.flush()
    # No run ends before those that it has called are told: one commit, nothing of the run comes between.
    _cancel(session, children, event.event_type(), terminal_cause)
    if reply_to is not None:
        answer = answer_to(
            session.command,
            run_id=session.run_id,
            reply_to=reply_to,
            capability_id=started.payload.get("capability_id") or "",
            provider_agent_id=agent.context.agent_ref.agent_id,
            output=output,
            error_type=error_type if error is not None else None,
            error=error,
            began=error is None or bool(history.entered),
            labels=history.provenance.everywhere,
            spent=None if history.spending.given is None else history.spending.total,
        )
        # The answer goes before the terminal event: nothing of a run follows its terminal event.
        session.stage(
            answer,
            trace=trace,
            causation_id=terminal_cause,
            idempotency_key=f"{session.run_id}/answer",
            to=Destination(reply_to["agent_type"], reply_to["run_id"]),
        )
    if isinstance(event, RunFailed | RunCancelled):
        for unknown, cause in left_under_way(history, session.run_id):
            session.stage(unknown, trace=trace, causation_id=cause)
    open_calls = (history.tools.left_open(session.run_id), history.models.left_open(session.run_id))
    for failed, cause in chain(*open_calls):
        session.stage(failed, trace=trace, causation_id=cause)
    for settled in history.spending.settled():
        session.stage(
            settled,
            trace=trace,
            causation_id=terminal_cause,
            idempotency_key=f"{session.run_id}/settled/{settled.account}",
            to=FactTopic(DOMAIN, settled.account),
        )
    session.stage(event, trace=trace, causation_id=terminal_cause, idempotency_key=f"{session.run_id}/end")
    await session.commit()
    return True


def _duration(session: RunSession) -> int:
    started = session.history.started
    begun = started.timestamp_ms if started is not None else session.clock.now_ms()
    return max(0, session.clock.now_ms() - begun)
