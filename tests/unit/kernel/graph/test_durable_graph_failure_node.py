"""A failure node for the whole graph, as LangGraph declares it: a run that fails goes on there."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langgraph.errors import NodeError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from noesium_stream.agent import agent_from_graph
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from tests.support import unbooking
from tests.support.effects import journal_of
from tests.support.unbooking import new_world


class State(TypedDict, total=False):
    why: str
    mended: bool


async def work(state: State) -> dict[str, Any]:
    raise LookupError("nothing there")


async def rescue(state: State, error: NodeError) -> Command[Any]:
    await current_step().effect("rescue", unbooking.act, "rescue")
    return Command(update={"why": f"{error.node}: {error.error}"}, goto="mend")


async def mend(state: State) -> dict[str, Any]:
    return {"mended": True}


def graph() -> StateGraph[Any, Any, Any, Any]:
    built = StateGraph(State)
    built.set_node_defaults(error_handler=rescue)
    built.add_node("work", work, destinations=("mend",))
    built.add_node("mend", mend)
    built.add_edge(START, "work")
    built.add_edge("mend", END)
    return built


DEATHS = [
    ("kernel.node.failed", 1),
    ("effect.completed", 1),
    ("kernel.node.completed", 1),
    ("kernel.node.completed", 2),
]


@pytest.mark.parametrize("death", [None, *DEATHS], ids=str)
async def test_a_run_goes_on_at_the_failure_node_of_its_graph_whatever_dies(
    death: tuple[str, int] | None,
) -> None:
    world = new_world()
    async with Rehearsal(agent_from_graph(graph(), "mender")) as rehearsal:
        if death is not None:
            rehearsal.crash_after(*death)
        run = await rehearsal.start({})
        result = await run.result()
        events, numbers = await journal_of(run)
    assert result == {"why": "work: LookupError: nothing there", "mended": True}
    assert world.calls["rescue"] == 1
    assert numbers == list(range(len(numbers)))
    assert [event.event_type for event in events].count("kernel.node.failed") == 1
