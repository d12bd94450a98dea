"""Tools of an agent: every call is judged, made once, and told of; a replay calls nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import Field

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import Mode, tool

made: Counter[str] = Counter()


class Order(TypedDict, total=False):
    number: int
    done: str


@tool(side_effects=SideEffectClass.EXTERNAL, permissions=("pay:order:{number}",))
def refund(number: int, pin: str = "") -> str:
    """Pay an order back."""
    made["refund"] += 1
    return f"paid {number}"


@tool(side_effects=SideEffectClass.IDEMPOTENT)
async def look_up(number: int, *, idempotency_key: str) -> dict[str, int]:
    """Look an order up."""
    made[idempotency_key] += 1
    return {"cents": number * 100}


@tool(side_effects=SideEffectClass.PURE, timeout=0.05)
async def slow() -> str:
    """Never ends."""
    await asyncio.Event().wait()
    return ""


async def handle(state: Order) -> dict[str, Any]:
    step = current_step()
    found = await step.tool("look_up", number=state["number"])
    paid = await step.tool("refund", number=state["number"])
    return {"done": f"{paid}: {found['cents']}"}


def agent_with(node: Any, mode: str = Mode.AUTO, permissions: tuple[str, ...] = ("pay:order",)) -> Any:
    graph = StateGraph(Order)
    graph.add_node("handle", node)
    graph.add_edge(START, "handle")
    kind = agent_from_graph(graph, "clerk")
    kind.tools, kind.mode, kind.permissions = (refund, look_up, slow), mode, permissions
    return kind


@pytest.fixture(autouse=True)
def _fresh() -> None:
    made.clear()


def told(events: list[EventEnvelope]) -> list[str]:
    return [event.event_type for event in events if event.event_type.startswith("tool.")]


def of_type(events: list[EventEnvelope], event_type: str) -> list[dict[str, Any]]:
    return [event.payload for event in events if event.event_type == event_type]


async def assert_replays(rehearsal: Rehearsal, run: Any, kind: Any) -> None:
    verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(kind, rehearsal.log))
    assert verdict.difference is None


async def test_each_call_is_told_of_in_the_commits_of_its_effect() -> None:
    kind = agent_with(handle)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        assert (await run.result())["done"] == "paid 7: 700"
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert told(events) == ["tool.invoked", "tool.completed"] * 2
    asked = of_type(events, "effect.requested")
    assert [one["call_id"] for one in of_type(events, "tool.invoked")] == [one["effect_id"] for one in asked]
    assert made["refund"] == 1


async def finished(rehearsal: Rehearsal, run: Any) -> str:
    """The run's outcome; a call of unknown outcome was made by hand."""
    while True:
        events = await run.history()
        if any(event.event_type == "run.completed" for event in events):
            return str((await run.result())["done"])
        for unknown in await rehearsal.client.unresolved_effects():
            handle = await rehearsal.client.get_run(run.id)
            await handle.resolve_effect(unknown.effect_id, "result", result="paid by hand")
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("crash", ["tool.invoked", "tool.completed", "effect.requested", "effect.completed"])
@pytest.mark.parametrize("nth", [1, 2])
async def test_no_call_is_made_again_after_a_crash(crash: str, nth: int) -> None:
    kind = agent_with(handle)
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after(crash, nth)
        run = await rehearsal.start({"number": 7})
        # The refund may be under way when the process dies; then a person says what became of it.
        done = await finished(rehearsal, run)
        assert done in ("paid 7: 700", "paid by hand: 700")
        assert made["refund"] <= 1
        assert made["refund"] or "by hand" in done
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert told(events) == ["tool.invoked", "tool.completed"] * 2


async def test_a_call_without_a_grant_is_refused_and_told_of() -> None:
    kind = agent_with(handle, permissions=())
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        with pytest.raises(RunFailedError, match="refund needs 'pay:order:7', and clerk is not granted"):
            await run.result()
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert told(events) == ["tool.invoked", "tool.completed", "tool.denied"]
    assert not made["refund"]
    (denied,) = of_type(events, "tool.denied")
    assert denied["kind"] == "permission"


async def test_a_person_is_asked_in_mode_act_and_may_edit_the_arguments() -> None:
    kind = agent_with(handle, mode=Mode.ACT)
    async with Rehearsal(kind) as rehearsal:
        rehearsal.crash_after("approval.requested")
        run = await rehearsal.start({"number": 7})
        await run.wait_for("approval.requested")
        await run.answer({"arguments": {"number": 8}})
        assert (await run.result())["done"] == "paid 8: 700"
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    (asked,) = of_type(events, "approval.requested")
    assert asked["question"]["arguments"] == {"number": 7}
    called = of_type(events, "tool.invoked")[1]
    assert (called["input"], called["approval_id"]) == ({"number": 8}, asked["approval_id"])
    assert told(events) == ["tool.invoked", "tool.completed"] * 2


async def test_a_refusal_by_a_person_is_told_of() -> None:
    kind = agent_with(handle, mode=Mode.ACT)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.wait_for("approval.requested")
        await run.answer(approved=False, by="ada")
        with pytest.raises(RunFailedError, match="ada has refused the call of refund"):
            await run.result()
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert told(events)[-1] == "tool.denied"
    assert not made["refund"]


async def test_an_answer_may_go_for_equal_calls_of_the_run() -> None:
    async def twice(state: Order) -> dict[str, Any]:
        step = current_step()
        done = [await step.tool("refund", number=number) for number in (7, 7, 8)]
        return {"done": ", ".join(done)}

    kind = agent_with(twice, mode=Mode.ACT)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.wait_for("approval.requested")
        await run.answer({"always": True})
        await run.wait_for("approval.requested", 2)
        await run.answer()
        assert (await run.result())["done"] == "paid 7, paid 7, paid 8"
        await assert_replays(rehearsal, run, kind)
        assert len(of_type(await run.history(), "approval.requested")) == 2


async def test_wrong_arguments_and_unknown_tools_are_refused() -> None:
    async def wrong(state: Order) -> dict[str, Any]:
        with pytest.raises(Exception, match=r"arguments\.number"):
            await current_step().tool("look_up", number="seven")
        with pytest.raises(Exception, match="clerk has no tool 'refunds'"):
            await current_step().tool("refunds", number=7)
        return {"done": "no"}

    kind = agent_with(wrong)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        assert (await run.result())["done"] == "no"
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert [one["kind"] for one in of_type(events, "tool.denied")] == ["input"]
    assert not made


async def test_a_call_that_exceeds_its_time_limit_is_told_of() -> None:
    async def wait(state: Order) -> dict[str, Any]:
        with pytest.raises(Exception, match="slow had not ended after"):
            await current_step().tool("slow")
        return {"done": "late"}

    kind = agent_with(wait)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        assert (await run.result())["done"] == "late"
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert told(events) == ["tool.invoked", "tool.timeout"]
    assert of_type(events, "effect.failed")[0]["error_type"] == "ToolTimeoutError"


async def test_a_run_that_ends_tells_the_end_of_its_open_calls() -> None:
    @tool(side_effects=SideEffectClass.EXTERNAL)
    async def endless() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    async def wait(state: Order) -> dict[str, Any]:
        return {"done": await current_step().tool("endless")}

    kind = agent_with(wait)
    kind.tools = (endless,)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.wait_for("tool.invoked")
        await (await rehearsal.client.get_run(run.id)).cancel()
        await run.wait_for("run.cancelled")
        events = await run.history()
    assert told(events) == ["tool.invoked", "tool.failed"]
    assert of_type(events, "tool.failed")[0]["error_type"] == "RunEnded"


async def test_secrets_of_the_arguments_are_not_on_the_log() -> None:
    seen: list[str] = []

    @tool(side_effects=SideEffectClass.EXTERNAL)
    def log_in(pin: Annotated[str, Field(json_schema_extra={"writeOnly": True})]) -> str:
        """Log in."""
        seen.append(pin)
        return "in"

    async def enter(state: Order) -> dict[str, Any]:
        return {"done": await current_step().tool("log_in", pin="4711-8150")}

    kind = agent_with(enter)
    kind.tools = (log_in,)
    async with Rehearsal(kind) as rehearsal:
        run = await rehearsal.start({"number": 7})
        await run.result()
        events = await run.history()
        await assert_replays(rehearsal, run, kind)
    assert seen == ["4711-8150"]
    assert "4711-8150" not in str([event.payload for event in events])
