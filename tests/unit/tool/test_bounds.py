"""How many calls are under way at the same time: of one tool, and of one server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import AtomicTool, Mode, ToolContext, ToolSource, tool
from noesium_stream.tool.bounds import Bounds

OBJECT = {"type": "object"}


def of_server(server: str, name: str, most: int | None = None) -> AtomicTool:
    return AtomicTool(
        f"{server}__{name}",
        "",
        OBJECT,
        source=ToolSource.MCP,
        toolkit_name=server,
        max_concurrency=most,
    )


class Room:
    """Calls that stay in their turn until they are let go; `inside` has those that have one, in order."""

    def __init__(self, bounds: Bounds) -> None:
        self.inside: list[str] = []
        self._bounds = bounds
        self._gates: dict[str, asyncio.Event] = {}
        self._calls: dict[str, asyncio.Task[None]] = {}

    def call(self, tool: AtomicTool, *names: str) -> None:
        for name in names:
            self._gates[name] = asyncio.Event()
            self._calls[name] = asyncio.create_task(self._call(tool, name))

    async def _call(self, tool: AtomicTool, name: str) -> None:
        async with self._bounds.turn(tool):
            self.inside.append(name)
            try:
                await self._gates[name].wait()
            finally:
                self.inside.remove(name)

    async def settled(self) -> list[str]:
        """Who is inside when nobody can go on."""
        for _ in range(20):  # a turn takes a few steps of the loop, whatever the machine
            await asyncio.sleep(0)
        return self.inside

    async def leave(self, name: str) -> list[str]:
        self._gates[name].set()
        return await self.settled()

    async def cancel(self, name: str) -> list[str]:
        self._calls[name].cancel()
        await asyncio.wait([self._calls[name]])
        return await self.settled()

    async def close(self) -> None:
        for one in self._calls.values():
            one.cancel()
        await asyncio.wait(self._calls.values())


async def test_calls_of_a_tool_wait_for_their_turn_in_order() -> None:
    room = Room(Bounds())
    room.call(AtomicTool("slow", "", OBJECT, max_concurrency=2), "a", "b", "c", "d")
    room.call(AtomicTool("other", "", OBJECT), "e")
    assert await room.settled() == ["a", "b", "e"]
    assert await room.leave("b") == ["a", "e", "c"]
    assert await room.leave("a") == ["e", "c", "d"]
    await room.close()


async def test_all_tools_of_a_server_share_its_bound() -> None:
    room = Room(Bounds(per_server=3))
    room.call(of_server("crm", "find"), "a", "b")
    room.call(of_server("crm", "write"), "c", "d")
    room.call(of_server("shop", "find"), "e")
    assert await room.settled() == ["a", "b", "c", "e"]
    assert await room.leave("a") == ["b", "c", "e", "d"]
    await room.close()


async def test_a_tool_of_a_server_has_both_bounds() -> None:
    room = Room(Bounds(per_server=2))
    room.call(of_server("crm", "find", most=1), "a", "b")
    room.call(of_server("crm", "write"), "c", "d")
    assert await room.settled() == ["a", "c"]
    # A call that waits for its tool holds no turn of the server.
    assert await room.leave("c") == ["a", "d"]
    await room.close()


async def test_a_call_that_is_cancelled_gives_its_turn_to_the_next() -> None:
    room = Room(Bounds())
    room.call(AtomicTool("slow", "", OBJECT, max_concurrency=1), "a", "b", "c", "d")
    assert await room.settled() == ["a"]
    assert await room.cancel("b") == ["a"]
    assert await room.cancel("a") == ["c"]
    assert await room.leave("c") == ["d"]
    await room.close()


class State(TypedDict, total=False):
    done: list[str]


open_calls: Counter[str] = Counter()
most: Counter[str] = Counter()


async def work(name: str, number: int) -> str:
    """Be under way until the loop has run all that could begin meanwhile."""
    open_calls[name] += 1
    most[name] = max(most[name], open_calls[name])
    for _ in range(50):
        await asyncio.sleep(0)
    open_calls[name] -= 1
    return f"{name} {number}"


@tool(side_effects=SideEffectClass.EXTERNAL, max_concurrency=2)
async def narrow(number: int) -> str:
    """Two at a time."""
    return await work("narrow", number)


@tool(side_effects=SideEffectClass.EXTERNAL)
async def wide(number: int) -> str:
    """As many as there are."""
    return await work("wide", number)


async def served(arguments: dict[str, Any], context: ToolContext) -> str:
    return await work("server", arguments["number"])


@pytest.mark.parametrize(("name", "bound"), [("narrow", 2), ("server", 6), ("wide", 6)])
async def test_calls_of_one_turn_run_at_once_up_to_the_bound(name: str, bound: int) -> None:
    open_calls.clear()
    most.clear()

    async def node(state: State) -> State:
        step = current_step()
        return {"done": await asyncio.gather(*(step.tool(name, number=number) for number in range(6)))}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    kind = agent_from_graph(graph, "clerk")
    of_mcp = AtomicTool("server", "", OBJECT, source=ToolSource.MCP, toolkit_name="crm", function=served)
    kind.tools, kind.mode = (narrow, wide, of_mcp), Mode.AUTO

    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({})
        assert (await run.result())["done"] == [f"{name} {number}" for number in range(6)]
        told = [event.event_type for event in await run.history() if event.event_type.startswith("tool.")]
    assert Counter(told) == {"tool.invoked": 6, "tool.completed": 6}
    assert most[name] == bound
