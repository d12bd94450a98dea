"""Calls of a `ToolNode` by the executor: judged, asked about, made once, together, and interrupted."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from typing_extensions import TypedDict

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import RunFailedError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, tool

made: Counter[str] = Counter()


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]


@tool(permissions=("pay:order:{number}",))
@langchain_tool
def refund(number: int) -> str:
    """Pay an order back; external."""
    made[f"refund {number}"] += 1
    return f"paid {number}"


@langchain_tool
@tool(side_effects=SideEffectClass.PURE)
async def look_up(number: int) -> int:
    """Look an order up."""
    made[f"look_up {number}"] += 1
    return number * 100


@tool(side_effects=SideEffectClass.PURE)
@langchain_tool
def fail(number: int) -> str:
    """Fail always."""
    made[f"fail {number}"] += 1
    raise ValueError(f"no {number}")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


def agent_with(node: ToolNode, **options: Any) -> Any:
    graph = StateGraph(State).add_node("tools", node).add_edge(START, "tools")
    kind = agent_from_graph(graph, "clerk")
    kind.mode, kind.permissions = Mode.AUTO, ("pay:order",)
    for name, value in options.items():
        setattr(kind, name, value)
    return kind


def asking(*calls: tuple[str, int | str]) -> dict[str, Any]:
    asked = [
        {"name": name, "args": {"number": number}, "id": f"c{n}", "type": "tool_call"}
        for n, (name, number) in enumerate(calls)
    ]
    return {"messages": [{"role": "assistant", "content": "", "tool_calls": asked, "id": "m"}]}


def said(result: Any) -> list[tuple[str, str]]:
    return [(one["content"], one["status"]) for one in result["messages"] if one["type"] == "tool"]


def told(events: list[EventEnvelope]) -> list[str]:
    return [event.event_type for event in events if event.event_type.startswith("tool.")]


def of_type(events: list[EventEnvelope], event_type: str) -> list[dict[str, Any]]:
    return [event.payload for event in events if event.event_type == event_type]


async def replayed(rehearsal: Rehearsal, run: Any, kind: Any) -> list[EventEnvelope]:
    """The run's journal, after a replay that agrees with it and makes no call."""
    before = made.copy()
    verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert verdict.difference is None
    assert made == before
    return list(await run.history())


async def test_a_call_is_told_of_under_the_id_of_the_message_s_call() -> None:
    kind = agent_with(ToolNode([refund, look_up]))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("refund", 7), ("look_up", 7)))
        assert said(await run.result()) == [("paid 7", "success"), ("700", "success")]
        events = await replayed(rehearsal, run, kind)
    assert sorted(told(events)) == ["tool.completed"] * 2 + ["tool.invoked"] * 2
    invoked = {one["tool_id"]: one for one in of_type(events, "tool.invoked")}
    assert invoked["langchain:refund"]["side_effect_class"] == "external"
    assert invoked["langchain:refund"]["permissions"] == ["pay:order:7"]
    assert invoked["langchain:look_up"]["side_effect_class"] == "pure"
    assert {one["output"] for one in of_type(events, "tool.completed")} == {"paid 7", "700"}


@pytest.mark.parametrize(
    ("handles", "answer"),
    [
        ({}, "refund needs 'pay:order:7', and clerk is not granted that: its class has no permission."),
        ({"handle_tool_errors": "Sorry"}, "Sorry"),
        ({"handle_tool_errors": lambda error: f"No: {error}"}, "No: refund needs 'pay:order:7'"),
    ],
)
async def test_a_refusal_is_a_message_for_the_model(handles: dict[str, Any], answer: str) -> None:
    kind = agent_with(ToolNode([refund], **handles), permissions=())
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("refund", 7)))
        ((text, status),) = said(await run.result())
        events = await replayed(rehearsal, run, kind)
    assert (text[: len(answer)], status) == (answer, "error")
    assert told(events) == ["tool.denied"]
    assert not made


async def test_a_refusal_is_raised_where_the_node_handles_no_errors() -> None:
    kind = agent_with(ToolNode([refund], handle_tool_errors=False), permissions=())
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("refund", 7)))
        with pytest.raises(RunFailedError, match="refund needs 'pay:order:7'"):
            await run.result()
        events = await replayed(rehearsal, run, kind)
    assert of_type(events, "kernel.node.failed")[0]["error_type"] == "ToolPermissionError"


async def test_arguments_that_langchain_refuses_are_a_refused_call() -> None:
    kind = agent_with(ToolNode([refund]))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("refund", "seven")))
        ((text, status),) = said(await run.result())
        events = await replayed(rehearsal, run, kind)
    assert text.startswith("Error invoking tool 'refund' with kwargs {'number': 'seven'}")
    assert status == "error"
    (denied,) = of_type(events, "tool.denied")
    assert (denied["kind"], told(events)) == ("input", ["tool.denied"])
    assert denied["reason"].startswith("refund does not take these arguments: number: Input should be")


async def test_a_person_is_asked_and_what_is_edited_is_called() -> None:
    kind = agent_with(ToolNode([refund]), mode=Mode.ACT)
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after("approval.requested")
        run = await rehearsal.start(asking(("refund", 7)))
        await run.wait_for("approval.requested")
        await run.answer({"arguments": {"number": 8}})
        assert said(await run.result()) == [("paid 8", "success")]
        events = await replayed(rehearsal, run, kind)
    assert of_type(events, "tool.invoked")[0]["input"] == {"number": 8}
    assert made == {"refund 8": 1}


async def test_a_person_s_no_is_a_message_and_an_edit_that_is_not_valid_calls_nothing() -> None:
    kind = agent_with(ToolNode([refund]), mode=Mode.ACT)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("refund", 7), ("refund", 8)))
        await run.wait_for("approval.requested", 2)
        await run.answer(approved=False, by="ada")
        await run.answer({"arguments": {"number": "all"}})
        answers = said(await run.result())
        events = await replayed(rehearsal, run, kind)
    assert ("ada has refused the call of refund.", "error") in answers
    assert {status for _, status in answers} == {"error"}
    assert told(events) == ["tool.denied", "tool.denied"]
    assert not made


CRASHES = [
    (event_type, nth)
    for event_type, times in {
        "effect.requested": 4,
        "tool.invoked": 3,
        "effect.completed": 3,
        "tool.completed": 2,
        "effect.failed": 1,
        "tool.failed": 1,
        "kernel.node.entered": 1,
        "kernel.node.completed": 1,
    }.items()
    for nth in range(1, times + 1)
]


@pytest.mark.parametrize(("event_type", "nth"), CRASHES)
async def test_no_call_is_made_again_after_a_crash(event_type: str, nth: int) -> None:
    kind = agent_with(ToolNode([refund, look_up, fail], handle_tool_errors=True))
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after(event_type, nth)
        run = await rehearsal.start(asking(("refund", 7), ("look_up", 7), ("fail", 7)))
        waiting = asyncio.create_task(run.result())
        while not waiting.done():  # the refund may be under way when the process dies; then a person tells
            for unknown in await rehearsal.client.unresolved_effects():
                handle = await rehearsal.client.get_run(run.id)
                await handle.resolve_effect(unknown.effect_id, "result", result="paid by hand")
            await asyncio.wait([waiting], timeout=0.01)
        answers = said(await waiting)
        events = await replayed(rehearsal, run, kind)
    assert answers[0] in (("paid 7", "success"), ("paid by hand", "success"))
    assert answers[1] == ("700", "success")
    assert answers[2] == ("Error: ValueError('no 7')\n Please fix your mistakes.", "error")
    assert made["refund 7"] <= 1
    assert made["refund 7"] or answers[0][0] == "paid by hand"
    ends = Counter(told(events))
    assert ends == {"tool.invoked": 3, "tool.completed": 2, "tool.failed": 1}


async def test_calls_of_one_message_are_made_at_the_same_time() -> None:
    together = asyncio.Barrier(3)

    @tool(side_effects=SideEffectClass.PURE)
    @langchain_tool
    async def meet(number: int) -> int:
        """Return when all have come."""
        await together.wait()
        return number

    kind = agent_with(ToolNode([meet]))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("meet", 1), ("meet", 2), ("meet", 3)))
        assert [text for text, _ in said(await run.result())] == ["1", "2", "3"]


async def test_the_other_calls_end_before_a_node_fails_and_the_first_failure_counts() -> None:
    late = asyncio.Event()

    @tool(side_effects=SideEffectClass.EXTERNAL)
    @langchain_tool
    async def fail_late(number: int) -> str:
        """Fail after the other one."""
        await late.wait()
        raise KeyError("late")

    @langchain_tool
    async def fail_early(number: int) -> str:
        """Fail at once."""
        late.set()
        raise ValueError("early")

    kind = agent_with(ToolNode([fail_late, fail_early]))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("fail_late", 1), ("fail_early", 2)))
        with pytest.raises(RunFailedError):
            await run.result()
        events = await replayed(rehearsal, run, kind)
    assert Counter(told(events)) == {"tool.invoked": 2, "tool.failed": 2}
    assert of_type(events, "kernel.node.failed")[0]["message"] == "'late'"


async def test_a_tool_that_is_interrupted_is_called_again_with_the_answer() -> None:
    @langchain_tool
    def order(number: int) -> str:
        """Order, after two questions."""
        made["order"] += 1
        first = interrupt({"how many": number})
        second = interrupt("and the colour?")
        made["ordered"] += 1
        return f"{first} {second}"

    kind = agent_with(ToolNode([order, look_up]))
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after("approval.requested")
        run = await rehearsal.start(asking(("order", 7), ("look_up", 7)))
        asked = await run.wait_for("approval.requested")
        assert asked.payload["question"] == {"how many": 7}
        await run.answer(3)
        await run.wait_for("approval.requested", 2)
        await run.answer("red")
        assert said(await run.result()) == [("3 red", "success"), ("700", "success")]
        events = await replayed(rehearsal, run, kind)
    assert made == {"order": 3, "ordered": 1, "look_up 7": 1}
    assert Counter(told(events)) == {"tool.invoked": 4, "tool.completed": 4}


async def test_an_interrupt_in_a_wrapper_repeats_no_call() -> None:
    async def ask(request: Any, execute: Any) -> Any:
        message = await execute(request)
        if interrupt(f"Is {message.content} right?") == "no":
            return ToolMessage("wrong", tool_call_id=request.tool_call["id"])
        return message

    kind = agent_with(ToolNode([refund], awrap_tool_call=ask))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("refund", 7)))
        await run.answer("no")
        assert said(await run.result()) == [("wrong", "success")]
        await replayed(rehearsal, run, kind)
    assert made == {"refund 7": 1}


async def test_a_tool_that_exceeds_its_time_limit_is_told_of() -> None:
    @tool(side_effects=SideEffectClass.PURE, timeout=0.05)
    @langchain_tool
    async def slow(number: int) -> str:
        """Never end."""
        await asyncio.Event().wait()
        return ""

    kind = agent_with(ToolNode([slow], handle_tool_errors=True))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("slow", 7)))
        ((text, status),) = said(await run.result())
        events = await replayed(rehearsal, run, kind)
    assert "slow had not ended after 0.05 s" in text
    assert (status, told(events)) == ("error", ["tool.invoked", "tool.timeout"])


async def test_a_tool_that_a_wrapper_brings_along_is_refused_where_it_is_not_registered() -> None:
    async def other(request: Any, execute: Any) -> Any:
        return await execute(request.override(tool=refund))

    kind = agent_with(ToolNode([look_up], awrap_tool_call=other))
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("refund", 7)))
        ((text, status),) = said(await run.result())
        events = await replayed(rehearsal, run, kind)
    assert status == "error"
    assert "refund" in text
    assert told(events) == ["tool.denied"]
    assert not made


async def test_what_a_tool_calls_in_turn_belongs_to_its_call() -> None:
    inner = ToolNode([look_up])

    @langchain_tool
    async def assistant(number: int) -> str:
        """Have a graph of its own look something up."""
        graph = StateGraph(State).add_node("tools", inner).add_edge(START, "tools").compile()
        state = await graph.ainvoke(
            {
                "messages": [
                    AIMessage("", tool_calls=[{"name": "look_up", "args": {"number": number}, "id": "inner"}])
                ]
            }
        )
        return str(state["messages"][-1].content)

    graph = StateGraph(State).add_node("tools", ToolNode([assistant])).add_edge(START, "tools")
    kind = agent_from_graph(graph.add_node("also", inner), "clerk")
    kind.mode = Mode.AUTO
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("assistant", 7)))
        assert said(await run.result()) == [("700", "success")]
        events = await replayed(rehearsal, run, kind)
    assert told(events) == ["tool.invoked", "tool.completed"]


async def test_a_node_s_own_code_may_call_a_tool_node_also_a_sync_one() -> None:
    node = ToolNode([refund, look_up])
    threads = []

    def settle(state: State) -> Any:
        threads.append(threading.current_thread() is not threading.main_thread())
        return node.invoke(state)

    async def asettle(state: State) -> Any:
        return await node.ainvoke(state)

    for body in (settle, asettle):
        made.clear()
        graph = StateGraph(State).add_node("settle", body).add_edge(START, "settle")
        kind = agent_from_graph(graph, "clerk")
        kind.mode, kind.permissions = Mode.AUTO, ("pay:order",)
        async with Rehearsal(kind) as rehearsal:
            run = await rehearsal.start(asking(("refund", 7), ("look_up", 7)))
            assert [text for text, _ in said(await run.result())] == ["paid 7", "700"]
            events = await replayed(rehearsal, run, kind)
        assert Counter(told(events)) == {"tool.invoked": 2, "tool.completed": 2}
    assert threads[0]


async def test_strict_mode_leaves_tools_to_other_agents() -> None:
    kind = agent_with(ToolNode([look_up]), execution_mode=ExecutionMode.STRICT)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start(asking(("look_up", 7)))
        with pytest.raises(RunFailedError, match="calls look_up by itself, which STRICT mode does not allow"):
            await run.result()
    assert not made
