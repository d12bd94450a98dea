"""Recording a run of a graph on `memory://`, and replaying it against that graph or a changed one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langgraph.graph import StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.capabilities.version import in_range
from noesium_stream.client import Client, Run
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import GraphRef
from noesium_stream.kernel.recording.recorded_run import RecordedRun, recorded_run
from noesium_stream.kernel.verify.verifier import ReplayTarget, Verdict, verify_run
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.reading import eventually

Graph = StateGraph[Any, Any, Any, Any]
REF = GraphRef(graph_id="sample", version="1.0.0", fingerprint="0")


async def journal_of(run: Run) -> RecordedRun:
    """The run's journal as it is now."""
    return recorded_run([record async for record in run.records(follow=False)])


async def recorded(
    graph: Graph,
    home: Path,
    *,
    events: Sequence[type[DomainEvent]] = (),
    signals: Sequence[tuple[str, Any]] = (),
    until: str | None = None,
    others: Sequence[Any] = (),
    **state: Any,
) -> RecordedRun:
    """Run `graph` to its end, or until its journal has an event of type `until`; return the journal."""
    log = await open_log("memory://")
    try:
        agents = [*others, agent_from_graph(graph)]
        async with Worker(log, agents, home=home), Client(log) as client:
            for event in events:
                client.log.catalogue.register(event)
            run = await client.start("sample", state)
            for name, value in signals:
                await run.signal(name, value)
            if until is None:
                async for _ in run.events():
                    pass
            else:
                await eventually(lambda: _has(run, until))
            return await journal_of(run)
    finally:
        await log.close()


async def _has(run: Run, event_type: str) -> bool:
    return event_type in [event.event_type async for event in run.events(follow=False)]


async def verify(graph: Graph, run: RecordedRun) -> Verdict:
    """Replay `run` against `graph`."""
    return await verify_run(ReplayTarget(graph.compile(), REF), run, in_range)
