"""Calls that ask a person, or go on as a task, before they have a result: each leg is made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import OutcomeUnknownError, ToolExecutionError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.testing import Rehearsal
from noesium_stream.tool import AsyncBaseToolkit, AtomicTool, Mode, ToolContext
from noesium_stream.tool.atomic import ToolSource
from noesium_stream.tool.legs import InputRequired, TaskStarted, Unfinished

legs: Counter[str] = Counter()
FORM = {"method": "elicitation/create", "params": {"mode": "form", "message": "Which table?"}}


class Server:
    """Asks for a table, goes on as a task, and books."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        legs["call"] += 1
        return InputRequired({"table": FORM}, "opaque")

    async def resume(
        self,
        arguments: dict[str, Any],
        context: ToolContext,
        unfinished: Unfinished,
        responses: Mapping[str, Any] | None = None,
    ) -> Any:
        if isinstance(unfinished, InputRequired):
            unfinished.check(responses or {})
            assert unfinished.request_state == "opaque"
            legs["answered"] += 1
            return TaskStarted("task-1")
        legs["polled"] += 1
        return {"booked": arguments["day"]}


class Trip(TypedDict, total=False):
    day: str
    booked: str


async def book(state: Trip) -> dict[str, Any]:
    found = await current_step().tool("book", day=state["day"])
    return {"booked": found["booked"]}


class Kit(AsyncBaseToolkit):
    """Has its tool only while it is started, as an MCP server's toolkit has."""

    name = "tables"

    def __init__(self, server: Any) -> None:
        super().__init__()
        self._tool = AtomicTool("book", "Book a table", {"type": "object"}, source=ToolSource.MCP)
        self._tool = self._tool.bind(server.call)
        self._started = False

    async def start(self) -> None:
        self._started = True

    async def stop(self) -> None:
        self._started = False

    def tools(self) -> list[AtomicTool]:
        return [self._tool] if self._started else []


def agent(server: Any = None, node: Any = book) -> Any:
    graph = StateGraph(Trip)
    graph.add_node("book", node)
    graph.add_edge(START, "book")
    kind = agent_from_graph(graph, "traveller")
    kind.tools = (Kit(server or Server()),)
    kind.mode = Mode.AUTO
    return kind


@pytest.mark.parametrize(
    "crash", [None, ("effect.completed", 1), ("approval.requested", 1), ("effect.completed", 2)]
)
async def test_each_leg_is_made_once_and_the_call_is_told_of_once(crash: tuple[str, int] | None) -> None:
    legs.clear()
    kind = agent()
    async with Rehearsal(kind) as rehearsal:
        if crash is not None:
            rehearsal.crash_after(*crash)
        run = await rehearsal.start({"day": "monday"})
        await run.wait_for("approval.requested")
        await run.answer({"table": {"action": "accept", "content": {"n": 4}}})
        assert (await run.result())["booked"] == "monday"
        events = await run.history()
        verdict = await verify(await rehearsal.client.get_run(run.id), agent_target(agent(), rehearsal.log))
    assert verdict.difference is None
    assert legs["call"] == legs["answered"] == 1
    told = [event for event in events if event.event_type.startswith("tool.")]
    assert [event.event_type for event in told] == ["tool.invoked", "tool.completed"]
    assert told[1].payload["output"] == {"booked": "monday"}
    classes = [event.payload["effect_class"] for event in events if event.event_type == "effect.requested"]
    assert classes == [SideEffectClass.EXTERNAL, SideEffectClass.EXTERNAL, SideEffectClass.IDEMPOTENT]


async def assert_replays(rehearsal: Rehearsal, run: Any, server: Any, node: Any = book) -> None:
    """A replay has a server that is not started, and so no tools at all."""
    target = agent_target(agent(server, node), rehearsal.log)
    verdict = await verify(await rehearsal.client.get_run(run.id), target)
    assert verdict.difference is None


def ends(events: list[Any]) -> list[tuple[str, Any]]:
    told = [event for event in events if event.event_type.startswith("tool.")]
    said = [event.payload.get("output", event.payload.get("error_type")) for event in told]
    return [(event.event_type, what) for event, what in zip(told, said, strict=True)]


class Silent(Server):
    """Nobody hears its answer to a leg, 0 or 1."""

    def __init__(self, leg: int) -> None:
        self.leg = leg

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        if self.leg == 0:
            raise OutcomeUnknownError("the line went dead")
        return InputRequired({}, "opaque")

    async def resume(self, *arguments: Any) -> Any:
        raise OutcomeUnknownError("the line went dead")


@pytest.mark.parametrize("leg", [0, 1])
@pytest.mark.parametrize("said", [{"result": {"booked": "x"}}, {"task": "x"}, {"booked": "x"}, "x", None])
async def test_what_a_person_says_of_a_leg_is_the_result_as_it_is(leg: int, said: Any) -> None:
    async def node(state: Trip) -> dict[str, Any]:
        found = await current_step().tool("book", day=state["day"])
        assert found == said
        return {"booked": "asked"}

    server = Silent(leg)
    async with Rehearsal(agent(server, node)) as rehearsal:
        run = await rehearsal.start({"day": "monday"})
        if leg == 1:
            await run.wait_for("approval.requested")
            await run.answer({})
        unknown = await run.wait_for("effect.outcome.unknown")
        await run.resolve_effect(unknown.payload["effect_id"], "result", said)
        assert (await run.result())["booked"] == "asked"
        assert ends(await run.history()) == [("tool.invoked", None), ("tool.completed", said)]
        await assert_replays(rehearsal, run, server, node)


class Closed(Server):
    """Refuses the second leg."""

    async def resume(self, *arguments: Any) -> Any:
        raise ToolExecutionError("closed on mondays")


async def test_a_call_whose_further_leg_fails_has_failed() -> None:
    async def node(state: Trip) -> dict[str, Any]:
        with pytest.raises(Exception, match="closed on mondays"):
            await current_step().tool("book", day=state["day"])
        return {"booked": "no"}

    server = Closed()
    async with Rehearsal(agent(server, node)) as rehearsal:
        run = await rehearsal.start({"day": "monday"})
        await run.wait_for("approval.requested")
        await run.answer({"table": {"action": "decline"}})
        assert (await run.result())["booked"] == "no"
        assert ends(await run.history()) == [("tool.invoked", None), ("tool.failed", "ToolExecutionError")]
        await assert_replays(rehearsal, run, server, node)
