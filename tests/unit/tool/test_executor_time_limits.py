"""The time limit of a call: that of its tool, or a shorter one among its arguments."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import Field

from noesium_stream.agent import agent_from_graph
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, tool
from noesium_stream.tool.atomic import GRACE_MS, TIME_LIMIT, AtomicTool
from noesium_stream.tool.builtin.python import PythonToolkit
from noesium_stream.tool.builtin.shell import ShellToolkit

Seconds = Annotated[float, Field(gt=0, json_schema_extra={TIME_LIMIT: True})]


@tool(timeout=3_600)
async def work(patience_s: Seconds = 30.0) -> str:
    """Work for so long at most."""
    return "worked"


class State(TypedDict, total=False):
    patience_s: float
    done: str


async def node(state: State) -> dict[str, Any]:
    return {"done": await current_step().tool("work", patience_s=state["patience_s"])}


def agent(mode: str) -> Any:
    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    kind = agent_from_graph(graph, "clerk")
    kind.tools, kind.mode = (work,), mode
    return kind


async def waited_for(rehearsal: Rehearsal, run: Any) -> int:
    """Milliseconds for which an owner that comes later waits for the call."""
    await run.result()
    [asked] = [event for event in await run.history() if event.event_type == "effect.requested"]
    return int(asked.payload["deadline_ms"] - asked.timestamp_ms)


async def test_a_call_is_waited_for_as_long_as_its_arguments_say() -> None:
    async with Rehearsal(agent(Mode.AUTO)) as rehearsal:
        run = await rehearsal.start({"patience_s": 2})
        assert await waited_for(rehearsal, run) == 2_000 + GRACE_MS


async def test_a_person_who_edits_the_limit_edits_how_long_the_call_is_waited_for() -> None:
    async with Rehearsal(agent(Mode.ACT)) as rehearsal:
        run = await rehearsal.start({"patience_s": 2})
        await run.wait_for("approval.requested")
        await run.answer({"arguments": {"patience_s": 90}})
        assert await waited_for(rehearsal, run) == 90_000 + GRACE_MS


@pytest.mark.parametrize("toolkit", [ShellToolkit(), PythonToolkit()])
def test_sandboxed_programs_have_their_limit_among_their_arguments(toolkit: Any) -> None:
    [found] = toolkit.tools()
    assert found.limit_ms({}) == 30_000 + GRACE_MS
    assert found.limit_ms({"timeout_s": 0.5}) == 500 + GRACE_MS


@pytest.mark.parametrize("given", ["soon", -1, 0, None, 10**400, 3_600, [2]])
def test_what_is_no_shorter_limit_changes_nothing(given: Any) -> None:
    [found] = ShellToolkit().tools()
    assert found.limit_ms({"timeout_s": given}) == 3_600_000


def test_a_schema_without_properties_has_no_limits() -> None:
    assert AtomicTool("work", "", {"type": "object"}, timeout_ms=7).limit_ms({"patience_s": 1}) == 7
