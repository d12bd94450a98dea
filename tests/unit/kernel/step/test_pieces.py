"""Pieces that a node writes: what readers of the run get, whatever becomes of the node."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, StreamWriter, interrupt

from noesium_stream import Piece, agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import KernelError, RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.kernel.step.step import Step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S
from tests.support.replays import journal_of, verify


class State(TypedDict, total=False):
    items: Annotated[list[Any], operator.add]


def one(node: Any, **options: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(State)
    graph.add_node("write", node, **options)
    graph.add_edge(START, "write")
    graph.add_edge("write", END)
    return graph


async def all_of(run: Run) -> list[Piece]:
    async with asyncio.timeout(PATIENCE_S):
        return [piece async for piece in run.pieces()]


async def pieces_of(graph: StateGraph[Any, Any, Any, Any], home: Path) -> list[Piece]:
    async with running(graph, home) as client:
        run = await client.start("sample", {"items": []})
        found = await all_of(run)
        await run.result(timeout=PATIENCE_S)
    return found


def data(pieces: list[Piece]) -> list[Any]:
    return [piece.data for piece in pieces]


async def test_pieces_are_read_in_the_order_of_writing(tmp_path: Path) -> None:
    async def write(state: State) -> State:
        for word in ("a", {"b": [1]}, None):
            await current_step().write(word)
        return {"items": ["whole"]}

    found = await pieces_of(one(write), tmp_path)
    assert data(found) == ["a", {"b": [1]}, None]
    assert [(piece.node, piece.step, piece.sequence) for piece in found] == [
        ("write", 1, n) for n in range(3)
    ]


async def test_the_journal_has_nothing_of_them(tmp_path: Path) -> None:
    async def write(state: State) -> State:
        await current_step().write("a")
        return {}

    async with running(one(write), tmp_path) as client:
        run = await client.start("sample", {"items": []})
        assert "stream.piece" not in {event.event_type async for event in run.events()}


async def test_langgraphs_stream_writer_writes_pieces_from_any_node(tmp_path: Path) -> None:
    def sync(state: State, writer: StreamWriter) -> State:
        writer("from a thread")
        get_stream_writer()({"n": 1})
        return {}

    async def inner(state: State) -> State:
        get_stream_writer()("from a subgraph")
        return {}

    graph = StateGraph(State)
    graph.add_node("sync", sync)
    graph.add_node("sub", one(inner).compile())
    graph.add_edge(START, "sync")
    graph.add_edge("sync", "sub")
    found = await pieces_of(graph, tmp_path)
    assert data(found) == ["from a thread", {"n": 1}, "from a subgraph"]
    assert [piece.node for piece in found] == ["sync", "sync", "write"]


async def test_a_chunk_that_is_no_piece_is_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def write(state: State) -> State:
        for chunk in (object(), object(), "x" * 70_000, "fine"):
            get_stream_writer()(chunk)
        return {}

    assert data(await pieces_of(one(write), tmp_path)) == ["fine"]
    assert len([record for record in caplog.records if "no piece" in record.message]) == 1


@pytest.mark.parametrize(
    ("value", "said"), [("x" * 70_000, "a piece of 70,002 bytes"), (object(), "piece is of type object")]
)
async def test_what_is_no_piece_is_the_writers_error(tmp_path: Path, value: Any, said: str) -> None:
    async def write(state: State) -> State:
        await current_step().write(value)
        return {}

    async with running(one(write), tmp_path) as client:
        run = await client.start("sample", {"items": []})
        with pytest.raises(RunFailedError) as failure:
            await run.result(timeout=PATIENCE_S)
    assert said in str(failure.value) or "JSON" in str(failure.value)


async def test_a_node_that_is_tried_again_says_that_it_begins_again(tmp_path: Path) -> None:
    tries: list[int] = []

    async def write(state: State) -> State:
        tries.append(1)
        await current_step().write(f"try {len(tries)}")
        if len(tries) == 1:
            raise OSError("once")
        return {}

    policy = RetryPolicy(initial_interval=0.001, jitter=False, retry_on=OSError)
    found = await pieces_of(one(write, retry_policy=policy), tmp_path)
    assert [(piece.data, piece.restarted) for piece in found] == [("try 1", False), ("try 2", True)]
    assert found[0].attempt < found[1].attempt


async def test_a_body_that_an_interrupt_has_ended_begins_again(tmp_path: Path) -> None:
    async def write(state: State) -> State:
        await current_step().write("before")
        interrupt("go on?")
        await current_step().write("after")
        return {}

    async with running(one(write), tmp_path) as client:
        run = await client.start("sample", {"items": []})
        reading = asyncio.create_task(all_of(run))
        async for event in run.events():
            if event.event_type == "approval.requested":
                await run.approve()
        found = await reading
    assert [(piece.data, piece.restarted) for piece in found][:2] == [("before", False), ("before", True)]
    assert len(found) == 3


async def test_strict_mode_compares_two_executions_and_writes_the_pieces_of_one(tmp_path: Path) -> None:
    async def write(state: State) -> State:
        await current_step().write("a")
        return {"items": [1]}

    log = await open_log("memory://")
    kind = agent_from_graph(one(write), execution_mode=ExecutionMode.STRICT)
    async with Worker(log, [kind], home=tmp_path), Client(log) as client:
        found = await all_of(await client.start("sample", {"items": []}))
    await log.close()
    assert [(piece.data, piece.restarted) for piece in found] == [("a", False)]


async def test_parallel_nodes_have_numbers_of_their_own(tmp_path: Path) -> None:
    async def write(state: State) -> State:
        for number in range(2):
            await current_step().write(number)
        return {}

    graph = StateGraph(State)
    for name in ("left", "right"):
        graph.add_node(name, write)
        graph.add_edge(START, name)
    found = await pieces_of(graph, tmp_path)
    for name in ("left", "right"):
        assert [(one.data, one.restarted) for one in found if one.node == name] == [(0, False), (1, False)]


async def test_a_node_that_has_ended_writes_no_more(tmp_path: Path) -> None:
    kept: list[Step] = []

    async def write(state: State) -> Command[Any]:
        kept.append(current_step())
        return Command(update={})

    await pieces_of(one(write), tmp_path)
    with pytest.raises(KernelError, match="has ended"):
        await kept[0].write("late")


async def test_a_replay_writes_nothing(tmp_path: Path) -> None:
    written: list[str] = []

    async def write(state: State) -> State:
        await current_step().write("token")
        written.append("token")
        return {"items": ["whole"]}

    graph = one(write)
    async with running(graph, tmp_path) as client:
        run = await client.start("sample", {"items": []})
        assert data(await all_of(run)) == ["token"]
        ends = await client.log.end(client.log.topology.stream)
        verdict = await verify(graph, await journal_of(run))
        assert verdict.difference is None
        assert written == ["token", "token"]
        assert await client.log.end(client.log.topology.stream) == ends
