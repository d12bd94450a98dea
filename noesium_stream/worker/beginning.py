"""The first records of a run's journal: the copy of its command, and `run.started`."""

from __future__ import annotations

from pydantic import ValidationError

from noesium_stream.errors import EventValidationError, brief
from noesium_stream.event.standard import RunStarted
from noesium_stream.log.headers import DEADLINE
from noesium_stream.log.port import Outgoing
from noesium_stream.log.record import Record
from noesium_stream.worker.releases import Release
from noesium_stream.worker.session import RunSession, SessionOwner


def first_records(
    owner: SessionOwner, release: Release, agent_type: str, record: Record
) -> tuple[RunSession, list[Outgoing], int | None]:
    """The session of a command's run, its first records, and its deadline (milliseconds since the epoch).

    Args:
        owner: of the session.
        release: what the run begins with.
        agent_type: whose run it is.
        record: the command.

    Raises:
        EventValidationError: no run can begin with it.
    """
    command = record.envelope
    payload = command.payload
    fork = payload.get("fork") or {}
    deadline_ms = payload.get("deadline_ms")
    try:
        started = RunStarted(
            run_id=record.key,
            agent_type=agent_type,
            agent_version=release.agent.version,
            graph=release.graph,
            capability_id=payload.get("capability_id") or fork.get("capability_id"),
            reply_to=payload.get("reply_to"),
            forked_from=fork or None,
            on_failure=release.on_failure,
            deadline_ms=deadline_ms,
        )
    except ValidationError as error:  # what JSON has as an integer may be too large for one
        raise EventValidationError("payload", brief(error, 200)) from error
    session = RunSession(owner, command)
    copy = session.accept(command, record)
    if deadline_ms is not None:
        deadline_ms = int(deadline_ms)  # 5.0 is an integer in JSON
        copy = copy._replace(headers=(*copy.headers, (DEADLINE, str(deadline_ms).encode())))
    session.stage(started, trace=session.identity.trace, causation_id=command.event_id)
    return session, [copy, *session.take_staged()], deadline_ms
