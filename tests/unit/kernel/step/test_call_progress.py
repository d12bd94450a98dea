"""Progress that tools tell: seen by who watches the run, bounded, and nowhere else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.event.rules.stream_progress import MAX_MESSAGE, ToolProgress
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.standard.attributes import MAX_NUMBER
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.tool import AtomicTool, ToolContext
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S

Tell = Callable[[ToolContext], Awaitable[None]]


class State(TypedDict, total=False):
    text: str


async def progress_of(tell: Tell, home: Path) -> tuple[list[ToolProgress], set[str]]:
    """What a run of one call tells, and the types of its events; the call ends when some of it was seen."""
    seen = asyncio.Event()
    found = []

    async def slow(arguments: dict[str, Any], context: ToolContext) -> str:
        await tell(context)
        await seen.wait()
        return "done"

    async def call(state: State) -> State:
        return {"text": await current_step().tool("slow")}

    graph = StateGraph(State).add_node("call", call).add_edge(START, "call")
    kind = agent_from_graph(graph)
    pure = SideEffectClass.PURE
    kind.tools = (AtomicTool("slow", "", {"type": "object"}, side_effect_class=pure, function=slow),)
    log = await open_log("memory://")
    async with Worker(log, [kind], home=home), Client(log) as client, asyncio.timeout(PATIENCE_S):
        run = await client.start("sample", {"text": ""})
        async for one in run.progress():
            found.append(one)
            seen.set()
        assert await run.result() == {"text": "done"}
        assert [piece async for piece in run.pieces()] == []
        types = {event.event_type async for event in run.events()}
    await log.close()
    return found, types


async def test_a_reader_of_the_run_gets_it_and_the_journal_has_nothing_of_it(tmp_path: Path) -> None:
    async def tell(context: ToolContext) -> None:
        context.progress(1, 9, "part 1")

    found, types = await progress_of(tell, tmp_path)
    assert [(one.tool, one.done, one.total, one.message) for one in found] == [("slow", 1, 9, "part 1")]
    assert found[0].node == "call"
    assert "stream.progress" not in types


async def test_a_tool_that_tells_without_end_writes_a_bounded_number_of_bounded_size(tmp_path: Path) -> None:
    async def tell(context: ToolContext) -> None:
        for number in range(100_000):
            context.progress(number, math.inf, "x" * 10_000)

    found, _ = await progress_of(tell, tmp_path)
    assert 1 <= len(found) < 100
    assert all(one.total == MAX_NUMBER and len(one.message) == MAX_MESSAGE for one in found)


async def test_a_tool_may_tell_from_a_thread_of_its_own(tmp_path: Path) -> None:
    async def tell(context: ToolContext) -> None:
        await asyncio.to_thread(context.progress, math.nan, None, "")

    found, _ = await progress_of(tell, tmp_path)
    assert [(one.done, one.total, one.message) for one in found] == [(0, None, "")]
