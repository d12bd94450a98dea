"""`create_agent` in an agent, with a model whose answers are recorded: every call once, none in a replay."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, MessagesState, StateGraph

from noesium_stream import journaled_model
from noesium_stream.agent import BaseGraphicAgent, agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import ConfigError, RunFailedError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, tool
from tests.support.chosen import one_of
from tests.support.scripted_chat import ScriptedChat, calling

made: Counter[str] = Counter()


@tool
@langchain_tool
def refund(number: int) -> str:
    """Pay an order back; external."""
    made[f"refund {number}"] += 1
    return f"paid {number}"


@tool(side_effects=SideEffectClass.PURE)
@langchain_tool
def look_up(number: int) -> int:
    """Look an order up."""
    made[f"look_up {number}"] += 1
    return number * 100


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


def model() -> ScriptedChat:
    return ScriptedChat(
        lines=[
            calling(("a", "look_up", {"number": 7}), ("b", "look_up", {"number": 8})),
            calling(("c", "refund", {"number": 7})),
            AIMessage("All done."),
        ]
    )


ASKED = {"messages": [{"role": "user", "content": "Pay order 7 back.", "id": "q"}]}


def agent_of(graph: Any) -> Any:
    class Clerk(BaseGraphicAgent):
        agent_type = "clerk"
        mode = Mode.AUTO

        def get_state_class(self) -> type[Any]:
            return dict

        def _build_graph(self) -> Any:
            return graph

    return Clerk


def of_type(events: list[EventEnvelope], event_type: str) -> list[dict[str, Any]]:
    return [event.payload for event in events if event.event_type == event_type]


async def settled(rehearsal: Rehearsal, run: Any) -> Any:
    """The result; a call of unknown outcome was made by hand."""
    waiting = asyncio.create_task(run.result())
    while not waiting.done():
        for unknown in await rehearsal.client.unresolved_effects():
            handle = await rehearsal.client.get_run(run.id)
            await handle.resolve_effect(unknown.effect_id, "result", result="paid 7")
        await asyncio.wait([waiting], timeout=0.01)
    return await waiting


CRASHES = [
    (event_type, nth)
    for event_type, times in {
        "effect.requested": 6,
        "effect.completed": 6,
        "tool.invoked": 3,
        "tool.completed": 3,
        "kernel.node.entered": 6,
        "kernel.node.completed": 6,
    }.items()
    for nth in range(1, times + 1)
]


@pytest.mark.parametrize(("event_type", "nth"), [("", 0), *CRASHES])
async def test_an_agent_of_langchain_makes_every_call_once(event_type: str, nth: int) -> None:
    script = model()
    kind = agent_of(create_agent(journaled_model(script), [look_up, refund], system_prompt="You pay back."))
    async with Rehearsal(kind) as rehearsal:
        if event_type:
            rehearsal.crash_after(event_type, nth)
        run = await rehearsal.start(ASKED)
        result = await settled(rehearsal, run)
        asked, calls = list(script.asked), made.copy()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        assert (script.asked, made) == (asked, calls)
        events = await run.history()
    texts = [one["content"] for one in result["messages"]]
    assert texts == ["Pay order 7 back.", "", "700", "800", "", "paid 7", "All done."]
    assert calls["refund 7"] <= 1
    assert sorted(set(asked)) == [0, 1, 2]
    assert len(asked) <= 3 + (event_type == "effect.requested")
    ends = Counter(event.event_type for event in events if event.event_type.startswith("tool."))
    assert ends == {"tool.invoked": 3, "tool.completed": 3}


WITHIN = [
    (event_type, nth)
    for event_type, times in {
        "effect.requested": 4,
        "effect.completed": 5,
        "tool.invoked": 1,
        "tool.completed": 1,
        "model.invoked": 4,
        "model.completed": 4,
        "kernel.node.completed": 3,
    }.items()
    for nth in range(1, times + 1)
]


@pytest.mark.parametrize("effect_class", [SideEffectClass.PURE, SideEffectClass.EXTERNAL])
@pytest.mark.parametrize(("event_type", "nth"), one_of(3, [("", 0), *WITHIN]))
async def test_a_tool_may_be_an_agent_with_such_a_model(
    event_type: str, nth: int, effect_class: SideEffectClass
) -> None:
    lines = [calling(("h", "help_out", {"number": 7})), AIMessage("Helped.")]
    inner = [calling(("l", "look_up", {"number": 7})), AIMessage("700 cents.")]
    script, helper = ScriptedChat(lines=lines), ScriptedChat(lines=inner)
    helping = create_agent(journaled_model(helper), [look_up])

    @tool(side_effects=effect_class)
    @langchain_tool
    async def help_out(number: int) -> str:
        """Have another agent look."""
        answer = await helping.ainvoke({"messages": [("user", f"Look {number} up.")]})
        return str(answer["messages"][-1].text)

    kind = agent_of(create_agent(journaled_model(script), [help_out]))
    async with Rehearsal(kind) as rehearsal:
        if event_type:
            rehearsal.crash_after(event_type, nth)
        run = await rehearsal.start(ASKED)
        result = await settled(rehearsal, run)
        asked, told = list(script.asked), list(helper.asked)
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
        assert (script.asked, helper.asked) == (asked, told)
    texts = [one["content"] for one in result["messages"]]
    assert texts in (
        ["Pay order 7 back.", "", "700 cents.", "Helped."],
        ["Pay order 7 back.", "", "paid 7", "Helped."],  # by a person, after an outcome that nobody knew
    )
    assert sorted(set(asked)) == [0, 1]


async def test_the_state_is_that_of_langchain_alone() -> None:
    alone = await create_agent(model(), [look_up, refund]).ainvoke(ASKED)
    kind = agent_of(create_agent(journaled_model(model()), [look_up, refund]))
    async with Rehearsal(kind) as rehearsal:
        result = await (await rehearsal.start(ASKED)).result()
    found = [(one["type"], one["content"], one.get("tool_calls")) for one in result["messages"]]
    assert found == [(one.type, one.content, getattr(one, "tool_calls", None)) for one in alone["messages"]]


async def test_an_agent_of_langchain_may_be_a_node_and_middleware_works() -> None:
    class Louder(AgentMiddleware):
        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            message = await handler(request)
            message.content = f"{message.content}!"
            return message

    inner = create_agent(journaled_model(model()), [look_up, refund], middleware=[Louder()])
    graph = StateGraph(MessagesState).add_node("clerk", inner).add_edge(START, "clerk")
    kind = agent_from_graph(graph, "clerk")
    kind.mode = Mode.AUTO
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(ASKED)
        result = await run.result()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
        assert verdict.difference is None
    assert [one["content"] for one in result["messages"] if one["type"] == "tool"] == [
        "700!",
        "800!",
        "paid 7!",
    ]
    assert made == {"look_up 7": 1, "look_up 8": 1, "refund 7": 1}


async def test_a_person_in_the_loop_of_langchain_is_asked_on_the_log() -> None:
    script = ScriptedChat(lines=[calling(("c", "refund", {"number": 7})), AIMessage("Done.")])
    asks = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    kind = agent_of(create_agent(journaled_model(script), [refund], middleware=[asks]))
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after("approval.requested")
        run = await rehearsal.start(ASKED)
        await run.answer({"decisions": [{"type": "approve"}]})
        assert (await run.result())["messages"][-1]["content"] == "Done."
    assert made == {"refund 7": 1}
    assert script.asked == [0, 1]


async def test_the_event_of_a_call_has_the_settings_and_the_hash_of_the_conversation() -> None:
    kind = agent_of(create_agent(journaled_model(model()), [look_up, refund]))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(ASKED)
        await run.result()
        events = await run.history()
    asked = [one for one in of_type(events, "effect.requested") if one["name"].startswith("model:")]
    given = [one["arguments"]["kwargs"] for one in asked]
    assert [one["messages"] for one in given] == [1, 4, 6]
    assert len({one["messages_sha256"] for one in given}) == 3
    assert len({one["options_sha256"] for one in given}) == 1
    assert given[0]["parameters"]["model"] == "scripted:ScriptedChat"


async def test_tokens_and_cost_of_each_call_are_told() -> None:
    usage = {"input_tokens": 40, "output_tokens": 10, "total_tokens": 50}
    script = ScriptedChat(lines=[AIMessage("All done.", usage_metadata=usage)])
    priced = journaled_model(script, prices={"input": 1, "output": 3})
    kind = agent_of(create_agent(priced, [look_up]))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(ASKED)
        await run.result()
        events = await run.history()
    (begun,), (ended,) = (of_type(events, f"model.{what}") for what in ("invoked", "completed"))
    assert (ended["input_tokens"], ended["output_tokens"], ended["cost_nano_usd"]) == (40, 10, 70_000)
    assert begun["reserved_nano_usd"] >= ended["cost_nano_usd"]


async def test_outside_a_node_the_model_is_asked_as_usual() -> None:
    script = model()
    chat = journaled_model(script)
    assert journaled_model(chat) is chat
    assert (await chat.ainvoke("Hello")).tool_calls[0]["name"] == "look_up"
    assert chat.invoke("Hello").tool_calls[0]["name"] == "look_up"
    assert script.asked == [0, 0]


async def test_an_error_of_the_model_fails_the_node_and_is_recorded() -> None:
    kind = agent_of(create_agent(journaled_model(ScriptedChat(lines=[])), [look_up]))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(ASKED)
        with pytest.raises(RunFailedError, match="list index out of range"):
            await run.result()
        events = await run.history()
    assert of_type(events, "effect.failed")[0]["error_type"] == "IndexError"


def test_a_model_that_binds_tools_by_a_wrapper_is_refused() -> None:
    class Wrapping(ScriptedChat):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.bind(tools=[]) | (lambda message: message)

    with pytest.raises(ConfigError, match="Wrapping binds tools in a way that cannot be recorded"):
        journaled_model(Wrapping(lines=[])).bind_tools([look_up])
