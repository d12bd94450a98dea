"""This product: a worker, and a client that starts runs and awaits their results."""

from __future__ import annotations

import asyncio
import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import peer_common as common
from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.kernel import Durability
from noesium_stream.log.open import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.gc_tuning import spare_what_is_loaded
from noesium_stream.worker.process_settings import tune_process

Graph = StateGraph[Any, Any, Any, Any]


class Count(TypedDict, total=False):
    n: int


class Talk(TypedDict, total=False):
    n: int
    messages: Annotated[list[str], operator.add]


async def plus_one(state: Count) -> Count:
    return {"n": state["n"] + 1}


def chain(steps: int, last: Any = plus_one) -> Graph:
    """A graph of nodes one after the other."""
    graph: Graph = StateGraph(Count)
    before = START
    for number in range(steps):
        graph.add_node(f"step-{number}", last if number == steps - 1 else plus_one)
        graph.add_edge(before, f"step-{number}")
        before = f"step-{number}"
    graph.add_edge(before, END)
    return graph


def talking(asked: common.Asked) -> Graph:
    async def turn(state: Talk) -> Talk:
        return {"n": state["n"] + 1, "messages": [common.text(asked)]}

    graph: Graph = StateGraph(Talk)
    graph.add_node("turn", turn)
    graph.add_edge(START, "turn")
    graph.add_conditional_edges("turn", lambda state: END if state["n"] >= asked["messages"] else "turn")
    return graph


def agent(name: str, state: type[Any], build: Callable[[], Graph], durability: str) -> type[BaseGraphicAgent]:
    """An agent of this graph."""

    class Made(BaseGraphicAgent):
        agent_type = name

        def get_state_class(self) -> type[Any]:
            return state

        def _build_graph(self) -> Graph:
            return build()

        def result(self, state: dict[str, Any]) -> Any:
            return {"n": state["n"]}

    Made.durability = Durability(durability)
    return Made


def agents(asked: common.Asked) -> list[type[BaseGraphicAgent]]:
    async def gated(state: Count) -> Count:
        await common.pass_gate(asked)
        return await plus_one(state)

    how = asked["durability"]
    if asked.get("serve") == "talk":
        return [agent("talk", Talk, lambda: talking(asked), how)]
    if asked.get("serve") == "open":
        return [agent("gated", Count, lambda: chain(2, gated), how)]
    return [
        agent("pair", Count, lambda: chain(2), how),
        agent("chain", Count, lambda: chain(common.STEPS), how),
    ]


async def worker(asked: common.Asked) -> None:
    """Serve until the process is killed, or the end of its input."""
    log = await open_log(asked["url"])
    tune_process()
    served = agents(asked)
    for one in served:
        topology = log.topology
        names = (topology.inbox(one.agent_type), topology.journal(one.agent_type))
        await log.ensure_topics([topology.spec(name) for name in names])
    async with Worker(log, served, home=Path(asked["home"]), concurrency=asked["at_once"]):
        spare_what_is_loaded()  # as `noesium worker` does
        common.say(ready=True)
        await asyncio.to_thread(sys.stdin.readline)
    await log.close()


async def client(asked: common.Asked) -> None:
    async with Client(asked["url"]) as started:

        def runs(name: str, wanted: int) -> common.One:
            async def one(number: int) -> None:
                common.expect(await (await started.start(name, {"n": 0})).result(), {"n": wanted})

            return one

        async def opened(number: int) -> Any:
            return (await started.start("gated", {"n": 0})).result()

        if asked["do"] == "open":
            await common.all_open(asked, opened)
        elif asked["do"] == "talk":
            await common.talk(asked, runs("talk", asked["messages"]))
        else:
            await common.measure(asked, pair=runs("pair", 2), chain=runs("chain", common.STEPS))


if __name__ == "__main__":
    common.main(worker, client)
