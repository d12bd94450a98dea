"""Runs that are pinned to another graph than the one that their worker executes.

A run is pinned to the version of the graph that it started with. When it is resumed on a newer version, it is
moved there (`move`). A run that no version of this worker can take is stranded (`leave`): it waits for a
worker that carries its graph, and then goes on (`go_on`). Both are journaled (`run.parked`, `run.resumed`).
`run.parked` is written only if the reason has changed, however often workers start.
"""

from __future__ import annotations

import re
from typing import Any, Final

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import MigrationError, brief
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.rules.agent_calls import input_of
from noesium_stream.event.standard import GraphRef, RunParked, RunResumed
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.kernel.migration.migration import Migration
from noesium_stream.kernel.migration.move_run import move_run
from noesium_stream.worker.graph_versions import Releases, named
from noesium_stream.worker.runs.fork_history import begin_fork
from noesium_stream.worker.runs.run_session import RunSession

_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
"""Address in the text of an object; it differs from process to process."""


async def move(agent: BaseGraphicAgent, session: RunSession) -> None:
    """Move a run that is pinned to an older version of the agent's graph to that graph.

    Raises:
        MigrationError: the run cannot be moved, or not yet; nothing was written.
        FencedError, CommitUnknownError: this process does not own the run any more.
    """
    history = session.history
    if history.started is None:
        raise ValueError("a run is moved after run.started")
    versions = agent.versions.since(history.pinned)
    if not versions:
        raise MigrationError(
            f"{agent.agent_type} {agent.version} has no migration from the graph that the run is pinned to."
        )
    started = history.started.payload
    asked = input_of(session.command.payload), started.get("capability_id")

    def begun(migration: Migration) -> Any:
        return (migration.initial_state or agent.initial_state)(*asked)

    shared: list[Any] = []
    if (
        started.get("forked_from") is not None
        and history.migrated is None
        and versions[0].leaving is not None
    ):
        try:
            initial = begun(versions[0].leaving)
            shared.append(await begin_fork(agent.context.log, agent.agent_type, session, initial))
        except NO_LONGER_OWNER:
            raise
        except Exception as error:
            raise MigrationError(f"What the run shares cannot be told: {brief(error)}") from error
    stands = history.pinned, history.migrated
    try:
        await move_run(versions, session, lambda migration: shared[0] if shared else begun(migration))
    except MigrationError:
        session.drop_staged()  # a refused record would block all further records of the run
        history.pinned, history.migrated = stands
        raise


def leave(session: RunSession, carried: Releases, why: str) -> str:
    """Leave a run stranded until a worker carries its graph; return a line for people that says why.

    Args:
        session: session of the run.
        carried: the graph versions that this worker carries.
        why: why the run cannot be moved to one of them.
    """
    pinned = GraphRef.model_validate(session.history.pinned)
    reason = f"it waits for {named(pinned)}; the worker has {carried}, and {why}"
    reason = _ADDRESS.sub("", reason)
    if session.history.stranded is None or _ADDRESS.sub("", session.history.stranded) != reason:
        _say(session, RunParked(run_id=session.run_id, reason=reason, graph=pinned))
    return f"run {session.run_id} is stranded: {reason}"


def go_on(session: RunSession, graph: GraphRef) -> None:
    """Journal that a stranded run goes on, if it is pinned to the worker's `graph`.

    A run that is moved to `graph` first, or that is ending, shows that by its other records.
    """
    history = session.history
    if history.stranded is None or history.compensation is not None or history.stop is not None:
        return
    if history.pinned == graph.model_dump():
        _say(session, RunResumed(run_id=session.run_id))


def _say(session: RunSession, event: DomainEvent) -> None:
    session.stage(event, trace=session.identity.trace, causation_id=session.identity.started_event_id)
    session.flush()
