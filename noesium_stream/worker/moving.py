"""Taking up a run that is pinned to an older version of its graph: it is moved, if that can be."""

from __future__ import annotations

from typing import Any

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import MigrationError, brief
from noesium_stream.event.calls import input_of
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel import NO_LONGER_OWNER
from noesium_stream.kernel.migrate import move_run
from noesium_stream.kernel.migration import Migration
from noesium_stream.worker.inherit import begin_fork
from noesium_stream.worker.session import RunSession


async def move(agent: BaseGraphicAgent, session: RunSession, graph: GraphRef) -> None:
    """Move the run to `graph` if it is pinned to an older version of it; else do nothing.

    Raises:
        MigrationError: it cannot be moved, or not yet; nothing was written.
        FencedError, CommitUnknownError: the run is not this process's any more.
    """
    history = session.history
    if history.pinned == graph.model_dump() or history.started is None:
        return
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
        session.drop_staged()  # what the log has refused: else nothing more could be said of the run
        history.pinned, history.migrated = stands
        raise
