"""An effect that has returned is known to have been done, whatever happens to its process next."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.client.operate.replay import verify
from noesium_stream.errors import CommitUnknownError, ProjectionError
from noesium_stream.kernel import current_step, graph_ref
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.unrecorded_outcomes import UnrecordedOutcomes
from noesium_stream.worker.state.journal_entry import Entry
from noesium_stream.worker.state.partition_state import PartitionState
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S


class Paying:
    """A graph whose node pays (an external effect) and then waits for `go` before it ends."""

    def __init__(self) -> None:
        self.paid = Counter[str]()
        self.returned = asyncio.Event()
        self.go = asyncio.Event()

    def graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(dict)
        graph.add_node("pay", self.node)
        graph.add_edge(START, "pay")
        return graph

    async def node(self, state: dict[str, Any]) -> dict[str, Any]:
        receipt = await current_step().effect("pay", self.pay)
        self.returned.set()
        await self.go.wait()
        return {"receipt": receipt}

    async def pay(self) -> str:
        self.paid["pay"] += 1
        return f"receipt {self.paid['pay']}"


def holds(event_type: str, outgoing: Sequence[Outgoing]) -> bool:
    return any(record.envelope.event_type == event_type for record in outgoing)


async def types_of(run: Run) -> list[str]:
    return [event.event_type async for event in run.events(follow=False)]


async def test_its_result_is_on_the_log_while_the_node_goes_on(tmp_path: Path) -> None:
    paying = Paying()
    log = await open_log("memory://")
    async with Worker(log, [agent_from_graph(paying.graph())], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {})
        async with asyncio.timeout(PATIENCE_S):
            async for event in run.events():
                if event.event_type == "effect.completed":
                    break
        assert not paying.go.is_set()
        paying.go.set()
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt 1"
    await log.close()


async def test_a_worker_that_ends_records_it_first(tmp_path: Path) -> None:
    paying = Paying()
    inner = await open_log("memory://")
    failing = FailingLog(inner, lambda *_: False, RuntimeError("never"), reaches_log=False)
    log: EventLog = failing  # type: ignore[assignment]
    async with Client(inner) as client:
        async with Worker(log, [agent_from_graph(paying.graph())], home=tmp_path) as worker:
            run = await client.start("sample", {})
            async for event in run.events():
                if event.event_type == "effect.requested":
                    failing.gate.clear()  # the log is slow from here on
                    break
            await paying.returned.wait()
            closing = asyncio.create_task(worker.close())
            while not closing.done() and not failing.gate.is_set():
                await asyncio.sleep(0)
                failing.gate.set()
            await closing
        assert (await types_of(run))[-1] == "effect.completed"
        paying.go.set()
        async with Worker(log, [agent_from_graph(paying.graph())], home=tmp_path):
            assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt 1"
    assert paying.paid["pay"] == 1
    await inner.close()


async def test_a_worker_that_loses_its_writer_records_it_with_the_next_one(tmp_path: Path) -> None:
    paying = Paying()
    inner = await open_log("memory://")
    failing = FailingLog(
        inner,
        lambda _, outgoing: holds("effect.completed", outgoing),
        CommitUnknownError("the broker went away"),
        reaches_log=False,
    )
    log: EventLog = failing  # type: ignore[assignment]
    async with Worker(log, [agent_from_graph(paying.graph())], home=tmp_path), Client(inner) as client:
        run = await client.start("sample", {})
        await paying.returned.wait()
        paying.go.set()
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt 1"
        types = Counter(await types_of(run))
    assert failing.failed
    assert paying.paid["pay"] == 1
    assert types["effect.completed"] == 1
    assert types["effect.outcome.unknown"] == 0
    await inner.close()


@pytest.mark.parametrize("reaches_log", [True, False])
async def test_a_call_that_never_began_is_made_by_the_next_owner(tmp_path: Path, reaches_log: bool) -> None:
    """Its intent may be on the log: the worker knows that it has called nothing."""
    paying = Paying()
    paying.go.set()
    inner = await open_log("memory://")
    failing = FailingLog(
        inner,
        lambda _, outgoing: holds("effect.requested", outgoing),
        CommitUnknownError("the disk of the state is full"),
        reaches_log=reaches_log,
    )
    log: EventLog = failing  # type: ignore[assignment]
    agents = [agent_from_graph(paying.graph())]
    async with Worker(log, agents, home=tmp_path), Client(inner) as client:
        run = await client.start("sample", {})
        assert (await run.result(timeout=PATIENCE_S))["receipt"] == "receipt 1"
        types = Counter(await types_of(run))
        graph = paying.graph().compile()
        verdict = await verify(run, ReplayTarget(graph, graph_ref(graph, "sample", "1.0.0")))
        assert verdict.is_same, verdict.difference
    assert failing.failed
    assert paying.paid["pay"] == 1
    assert types["effect.outcome.unknown"] == 0
    assert types["effect.requested"] == (2 if reaches_log else 1)
    await inner.close()


async def test_a_state_that_finds_no_room_on_disk_leaves_no_effect_of_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paying, evolve, full = Paying(), PartitionState.evolve, list[str]()
    paying.go.set()

    def finds_no_room(state: PartitionState, entry: Entry) -> None:
        if entry.event_type == "effect.requested" and not full:
            full.append("state file")
            raise ProjectionError("no space left on device")
        evolve(state, entry)

    monkeypatch.setattr(PartitionState, "evolve", finds_no_room)
    log = await open_log("memory://?partitions=1")
    async with Worker(log, [agent_from_graph(paying.graph())], home=tmp_path), Client(log) as client:
        runs = [await client.start("sample", {}) for _ in range(50)]
        for run in runs:
            await run.result(timeout=PATIENCE_S)
        found = sum([Counter(await types_of(run)) for run in runs], Counter[str]())
    assert full
    assert paying.paid["pay"] == 50
    assert found["effect.outcome.unknown"] == 0
    assert found["effect.requested"] == 50 + found["effect.failed"] > 50
    await log.close()


@pytest.mark.parametrize("called_again", [True, False])
def test_what_a_call_came_to_is_not_taken_for_that_of_a_call_made_again_elsewhere(called_again: bool) -> None:
    unrecorded = UnrecordedOutcomes()
    outcome: Any = SimpleNamespace(causation_id="first intent", partition_key="run")
    unrecorded.keep({"effect": outcome})
    intent = SimpleNamespace(event_id="second intent" if called_again else "first intent")
    restaged: list[Any] = []
    session: Any = SimpleNamespace(
        history=SimpleNamespace(requested={"effect": intent}, outcomes={}),
        restage=restaged.append,
        flush=lambda: None,
    )
    unrecorded.record(session)
    assert len(restaged) == (0 if called_again else 1)
    assert not unrecorded.runs()
