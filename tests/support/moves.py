"""Moving runs between versions of a graph on `ListJournal`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.graph import StateGraph

from noesium_stream.clock import SystemClock
from noesium_stream.errors import CommitUnknownError
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import GraphRef, RunStarted
from noesium_stream.kernel import Durability, DurableGraph, Migration, graph_ref
from noesium_stream.kernel.migration.migration import Migrations
from noesium_stream.kernel.migration.move_run import move_run
from tests.support.journal import RUN_ID, ListJournal

Builder = StateGraph[Any, Any, Any, Any]


def ref_of(builder: Builder, version: str) -> GraphRef:
    return graph_ref(builder.compile(), "sample", version)


def begun(builder: Builder, version: str = "1.0.0") -> list[EventEnvelope]:
    """The log of a run that is pinned to this graph and has done nothing."""
    started = RunStarted(
        run_id=RUN_ID, agent_type="sample", agent_version=version, graph=ref_of(builder, version)
    )
    trace = TraceContext("1" * 32, "2" * 16)
    return [started.to_envelope(AgentRef("sample", "sample", "1"), trace, None, clock=SystemClock())]


async def execute(
    builder: Builder,
    log: list[EventEnvelope],
    state: dict[str, Any],
    *,
    dies_at: int | None = None,
    reaches_log: bool = False,
    walk_steps: int = 100,
) -> Any:
    """Execute a run over `log` in a new process; None where that dies."""
    journal = ListJournal(log, dies_at=dies_at, reaches_log=reaches_log)
    durable = DurableGraph(builder.compile(), durability=Durability.SYNC, walk_steps=walk_steps)
    try:
        return await durable.execute(journal, state)
    except CommitUnknownError:
        return None


def versions(
    newest: Builder, *migrations: Migration, version: str = "2.0.0", walk_steps: int = 100
) -> Migrations:
    durable = DurableGraph(newest.compile(), durability=Durability.SYNC, walk_steps=walk_steps)
    return Migrations(migrations, ref_of(newest, version), durable)


async def move(
    moves: Migrations,
    log: list[EventEnvelope],
    state: dict[str, Any],
    *,
    dies_at: int | None = None,
    reaches_log: bool = False,
) -> Any:
    """Take a run up in a new process, move it and execute it to its end; None where that dies."""
    journal = ListJournal(log, dies_at=dies_at, reaches_log=reaches_log)
    line = moves.since(journal.history.pinned)
    assert line, "the run is pinned to none of these"
    try:
        if len(line) > 1:
            await move_run(line, journal, lambda migration: state)
        return await line[-1].durable.execute(journal, state)
    except CommitUnknownError:
        return None


def moved(log: Sequence[EventEnvelope]) -> list[dict[str, Any]]:
    """The payloads of all moves."""
    return [event.payload for event in log if event.event_type == "run.migrated"]
