"""What goes wrong is said by the worker: one line each, short, and not without a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.failure_lines import MOST, WIDTH, WINDOW_S, FailureLines
from tests.support.reading import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("calm")


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def agent(node: Any) -> Any:
    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    return agent_from_graph(graph)


async def test_a_failed_run_is_told_in_one_line(log: EventLog, tmp_path: Path) -> None:
    async def node(state: Any) -> Any:
        raise ValueError("first line\nsecond line")

    said: list[str] = []
    async with Client(log) as client:
        async with Worker(log, [agent(node)], home=tmp_path, progress=said.append):
            run = await client.start("sample", {})
            with pytest.raises(RunFailedError):
                await run.result(timeout=PATIENCE_S)
            await eventually(lambda: said)
        async with Worker(log, [agent(node)], home=tmp_path, progress=said.append):
            pass
    failures = [line for line in said if "taken over from" not in line]
    assert failures == [f"run {run.id} failed: ValueError: first line second line"]


async def test_an_unknown_outcome_is_told_with_the_effects_name(log: EventLog, tmp_path: Path) -> None:
    async def node(state: Any) -> Any:
        return {"done": await current_step().effect("pay", object)}  # has no JSON form

    said: list[str] = []
    async with Worker(log, [agent(node)], home=tmp_path, progress=said.append), Client(log) as client:
        run = await client.start("sample", {})
        await eventually(lambda: said)
    assert len(said) == 1
    assert said[0].startswith(f"run {run.id}: the outcome of the effect pay is unknown: it was done")
    assert "it was done, and its result cannot be recorded" in said[0]


async def test_of_an_effect_of_a_run_that_has_ended_nobody_is_asked_to_decide(
    log: EventLog, tmp_path: Path
) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def pay() -> None:
        begun.set()
        await over.wait()

    async def node(state: Any) -> Any:
        return {"done": await current_step().effect("pay", pay)}

    said: list[str] = []
    async with Worker(log, [agent(node)], home=tmp_path, progress=said.append), Client(log) as client:
        run = await client.start("sample", {})
        await begun.wait()
        await run.cancel("enough")
        await eventually(lambda: said)
        over.set()
    reason = "the run ended while it was under way"
    assert said[0] == f"run {run.id}: the outcome of the effect pay is unknown: {reason}"


async def test_a_dead_letter_is_told_with_its_place(log: EventLog, tmp_path: Path) -> None:
    async def node(state: Any) -> Any:
        return {}

    said: list[str] = []
    async with Worker(log, [agent(node)], home=tmp_path, progress=said.append), Client(log) as client:
        run = await client.start("sample", {})
        await run.result(timeout=PATIENCE_S)
        journal = log.topology.journal("sample")
        events = [record.envelope async for record in log.read(journal, {}, until=await log.end(journal))]
        started = next(event for event in events if event.event_type == "run.started")
        [position] = await log.append([started], topic=log.topology.inbox("sample"))
        await eventually(lambda: said)
    assert len(said) == 1
    place = f"{position.topic}/{position.partition}/{position.offset}"
    assert said[0].startswith(f"{place} is a dead letter: ")


def test_the_lines_are_short_and_bounded() -> None:
    clock, said = VirtualClock(), list[str]()
    telling = FailureLines(said.append, clock)
    for number in range(MOST + 7):
        telling.tell(f"{number} " + "x" * 1_000)
    assert len(said) == MOST
    assert {len(line) for line in said} == {WIDTH}
    clock.advance(WINDOW_S)
    telling.tell("later")
    assert said[MOST:] == ["and 7 more failures: noesium runs", "later"]
