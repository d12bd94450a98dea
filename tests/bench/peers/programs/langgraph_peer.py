"""LangGraph with a checkpointer: called in the client's process, there is no worker."""

from __future__ import annotations

import itertools
import operator
import time
from contextlib import AsyncExitStack
from typing import Annotated, Any, TypedDict

import peer_common as common
from langgraph.graph import END, START, StateGraph


class Count(TypedDict, total=False):
    n: int


class Talk(TypedDict, total=False):
    n: int
    messages: Annotated[list[str], operator.add]


async def plus_one(state: Count) -> Count:
    return {"n": state["n"] + 1}


def chain(steps: int, last: Any = plus_one) -> StateGraph[Any, Any, Any, Any]:
    """A graph of nodes one after the other."""
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Count)
    before = START
    for number in range(steps):
        graph.add_node(f"step-{number}", last if number == steps - 1 else plus_one)
        graph.add_edge(before, f"step-{number}")
        before = f"step-{number}"
    graph.add_edge(before, END)
    return graph


def talking(asked: common.Asked) -> StateGraph[Any, Any, Any, Any]:
    async def turn(state: Talk) -> Talk:
        return {"n": state["n"] + 1, "messages": [common.text(asked)]}

    graph: StateGraph[Any, Any, Any, Any] = StateGraph(Talk)
    graph.add_node("turn", turn)
    graph.add_edge(START, "turn")
    graph.add_conditional_edges("turn", lambda state: END if state["n"] >= asked["messages"] else "turn")
    return graph


async def saver(stack: AsyncExitStack, asked: common.Asked) -> Any:
    """The checkpointer, as its own documentation opens it; Postgres by a pool.

    Each is imported where it is used: no environment has both.
    """
    if asked.get("dsn"):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver  # noqa: PLC0415
        from psycopg.rows import dict_row  # noqa: PLC0415
        from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415

        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        pool = AsyncConnectionPool(asked["dsn"], min_size=1, max_size=20, kwargs=settings, open=False)
        made: Any = AsyncPostgresSaver(await stack.enter_async_context(pool))
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415

        made = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(asked["path"]))
    await made.setup()
    return made


async def client(asked: common.Asked) -> None:
    async with AsyncExitStack() as stack:
        saves = await saver(stack, asked)
        numbers = itertools.count()

        def calls(graph: StateGraph[Any, Any, Any, Any], wanted: Any, field: str = "n") -> common.One:
            compiled = graph.compile(checkpointer=saves)

            async def call(number: int) -> None:
                thread = number if asked["do"] == "open" else next(numbers)  # open ones are called again
                name = f"{asked['name']}-{thread}"
                config: Any = {"configurable": {"thread_id": name}, "recursion_limit": 1_000}
                given: Count | None = {"n": 0}
                if asked.get("resume") and (await compiled.aget_state(config)).next:
                    given = None  # else not even its input was saved: it is called as for the first time
                state = await compiled.ainvoke(given, config, durability=asked["durability"])
                common.expect(len(state[field]) if field == "messages" else state[field], wanted)

            return call

        async def gated(state: Count) -> Count:
            await common.pass_gate(asked)
            return await plus_one(state)

        if asked["do"] == "open":
            call = calls(chain(2, gated), 2)
            await common.in_flight(asked["count"], asked["count"], call)
            common.say(done_at=time.monotonic())
        elif asked["do"] == "talk":
            await common.talk(asked, calls(talking(asked), asked["messages"], "messages"))
        else:
            await common.measure(
                asked, pair=calls(chain(2), 2), chain=calls(chain(common.STEPS), common.STEPS)
            )


if __name__ == "__main__":
    common.main(client, client)
