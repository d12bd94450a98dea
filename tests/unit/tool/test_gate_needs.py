"""Needs that are found before a call: judged, recorded, and granted to it; a replay does not look for any."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError, ToolInputError, ToolServerError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.event.trust.policy import Policy
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import AtomicTool, Mode, ToolContext, tool, tool_of_function
from noesium_stream.tool.recorded_calls import recorded_tool_calls
from noesium_stream.tool.verdict import Allowed, Denied

asked: list[tuple[str, tuple[str, ...]]] = []
calls: list[tuple[str, tuple[str, ...]]] = []


class Question(TypedDict, total=False):
    text: str
    answer: str


@tool(side_effects=SideEffectClass.PURE)
async def query(text: str, context: ToolContext) -> str:
    """Query tables, by a text of their names."""
    calls.append((text, context.granted_permissions))
    return f"of {text}"


async def tables_of(arguments: dict[str, Any], context: ToolContext) -> Sequence[str]:
    asked.append((arguments["text"], context.granted_permissions))
    if arguments["text"] == "?":
        raise ToolInputError("There is no such table.")
    if arguments["text"] == "!" and len(asked) < 2:
        raise ToolServerError("The database does not answer.")
    return [f"sql:read:{name}" for name in arguments["text"].split()]


async def ask(state: Question) -> dict[str, Any]:
    return {"answer": await current_step().tool("query", text=state["text"])}


def clerk(*permissions: str, mode: Mode = Mode.AUTO) -> Any:
    graph = StateGraph(Question).add_node("ask", ask).add_edge(START, "ask")
    kind = agent_from_graph(graph, "clerk")
    found: AtomicTool = replace(tool_of_function(query), find_needs=tables_of)
    kind.tools, kind.mode, kind.permissions = (found,), mode, permissions
    return kind


@pytest.fixture(autouse=True)
def _fresh() -> None:
    asked.clear()
    calls.clear()


async def history_of(kind: Any, text: str) -> list[Any]:
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"text": text})
        with suppress(RunFailedError):
            await run.result()
        return await run.history()


async def test_a_call_within_the_grants_is_made_and_its_needs_are_recorded_and_granted() -> None:
    kind = clerk("sql:read:orders", "fs:read")
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"text": "orders"})
        await run.result()
        events = await run.history()
        handle = await rehearsal.client.get_run(run.id)
        assert (await verify(handle, agent_target(kind, rehearsal.log))).difference is None
    assert asked == [("orders", ("sql:read:orders", "fs:read"))]  # the replay asks nothing
    assert calls == [("orders", ("sql:read:orders",))]
    (begun,) = [event.payload for event in events if event.event_type == "tool.invoked"]
    assert begun["permissions"] == ["sql:read:orders"]


async def test_a_call_that_needs_more_is_denied_and_not_made() -> None:
    events = await history_of(clerk("sql:read:orders", mode=Mode.ASK), "orders salaries")
    (denied,) = [event.payload for event in events if event.event_type == "tool.denied"]
    assert denied["kind"] == "permission"
    assert "sql:read:salaries" in denied["reason"]
    assert denied["permissions"] == ["sql:read:orders", "sql:read:salaries"]
    assert calls == []


async def test_arguments_whose_needs_cannot_be_found_are_denied_as_input() -> None:
    events = await history_of(clerk("sql:read"), "?")
    (denied,) = [event.payload for event in events if event.event_type == "tool.denied"]
    assert (denied["kind"], calls) == ("input", [])


async def test_a_server_that_does_not_answer_denies_nothing() -> None:
    events = await history_of(clerk("sql:read"), "!")
    assert [event.event_type for event in events if event.event_type.startswith("tool.")] == []
    assert calls == []


async def test_a_dry_run_judges_the_needs_that_were_found() -> None:
    events = await history_of(clerk("sql:read"), "orders")
    verdicts = []
    for grant in ("sql:read:orders", "sql:read:salaries"):
        rules = {"agents": {"clerk": {"grant": [grant], "mode": "auto"}}}
        (call,) = recorded_tool_calls(events, Policy.model_validate(rules))
        verdicts.append(type(call.verdict))
    assert verdicts == [Allowed, Denied]
