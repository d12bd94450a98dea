"""`Step.call_tool`: a tool of another agent, asked by event, once, in every mode and over every crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.config import ExecutionMode
from noesium_stream.errors import (
    CapabilityError,
    CapabilityNotFoundError,
    CommitUnknownError,
    ConfigError,
    ReplayDivergenceError,
    StateError,
    StrictModeError,
)
from noesium_stream.event import AgentRef, DomainEvent
from noesium_stream.event.rules.agent_calls import answer_to
from noesium_stream.event.standard import GraphRef, RunStarted
from noesium_stream.kernel import DurableGraph, Provider, current_step
from noesium_stream.kernel.journal import Wanted
from tests.support.journal import RUN_ID, ListJournal

ASKED, ANSWERED = "tool.invocation.requested", "tool.invocation.completed"


class State(TypedDict, total=False):
    items: list[str]
    prices: list[int]


class Shop(ListJournal):
    """A journal of a run whose tool calls are answered, by an agent of the type `shop`, once each."""

    def __init__(self, *given: Any, price: Callable[[str], int | str] = len, **options: Any) -> None:
        super().__init__(*given, **options)
        self._price = price
        if not self.log:
            graph = GraphRef(graph_id="sample", version="1.0.0", fingerprint="f")
            started = RunStarted(run_id=RUN_ID, agent_type="sample", agent_version="1.0.0", graph=graph)
            trace = self.identity.trace
            self.log.append(started.to_envelope(self.identity.agent, trace, clock=self.clock))
            self.history.apply(self.log[0])

    async def resolve(self, wanted: Wanted) -> Provider:
        if wanted.capability_id != "tool.shop.price" or wanted.tried:
            raise CapabilityNotFoundError(f"nobody offers {wanted.capability_id}")
        return Provider("shop-1", "shop", wanted.capability_id, "1.2.0", 7)

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        await self.commit()
        for event in [e for e in self.log if e.event_type == ASKED]:
            payload = event.payload
            if payload["call_id"] in self.history.answered:
                continue
            found = self._price(payload["arguments"]["item"])
            failed = isinstance(found, str)
            answer = answer_to(
                event,
                run_id=payload["run_id"],
                reply_to=payload["reply_to"],
                capability_id=payload["capability_id"],
                provider_agent_id="shop-1",
                output=None if failed else found,
                error_type="ValueError" if failed else None,
                error=found if isinstance(found, str) else None,
            ).to_envelope(AgentRef("shop-1", "shop"), event.trace, partition_key=RUN_ID, clock=self.clock)
            self.log.append(answer)
            self.history.apply(answer)
        assert ready()


async def ask(state: State) -> dict[str, Any]:
    step = current_step()
    prices = [await step.call_tool("shop", "price", {"item": item}) for item in state["items"]]
    return {"prices": prices}


def add(state: State) -> dict[str, Any]:
    return {"prices": [sum(state["prices"])]}


def durable(mode: ExecutionMode = ExecutionMode.STRICT, node: Any = ask) -> DurableGraph:
    graph = StateGraph(State)
    graph.add_node("ask", node)
    graph.add_node("add", add)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "add")
    return DurableGraph(graph.compile(), mode=mode)


@pytest.mark.parametrize("mode", ExecutionMode)
async def test_a_tool_is_asked_by_event_in_every_mode(mode: ExecutionMode) -> None:
    journal = Shop()
    final = await durable(mode).execute(journal, {"items": ["bread", "oil"]})
    assert final["prices"] == [8]
    asked = [event for event in journal.log if event.event_type == ASKED]
    assert [event.payload["arguments"] for event in asked] == [{"item": "bread"}, {"item": "oil"}]
    first = asked[0].payload
    assert (first["toolkit_name"], first["tool_name"]) == ("shop", "price")
    assert (first["capability_id"], first["version"]) == ("tool.shop.price", "1.2.0")
    assert (first["target_agent_id"], first["target_agent_type"]) == ("shop-1", "shop")
    assert first["registry_offset"] == 7
    assert first["reply_to"] == {"agent_type": "sample", "run_id": RUN_ID, "call_id": first["call_id"]}
    assert first["run_id"] == first["call_id"] == asked[0].partition_key
    assert "effect.requested" not in journal.types()


async def undisturbed() -> ListJournal:
    journal = Shop()
    await durable().execute(journal, {"items": ["bread", "oil"]})
    return journal


@pytest.mark.parametrize("reaches_log", [False, True])
async def test_killed_at_any_commit_each_tool_is_asked_once(reaches_log: bool) -> None:
    commits = (await undisturbed()).commits
    assert commits >= 3
    for dies_at in range(1, commits + 1):
        dead = Shop(dies_at=dies_at, reaches_log=reaches_log)
        with pytest.raises(CommitUnknownError):
            await durable().execute(dead, {"items": ["bread", "oil"]})
        journal = Shop(dead.log)
        final = await durable().execute(journal, {"items": ["bread", "oil"]})
        await journal.commit()
        assert final["prices"] == [8], dies_at
        assert journal.types().count(ASKED) == journal.types().count(ANSWERED) == 2, dies_at
        assert journal.types().count("kernel.node.completed") == 2, dies_at


async def test_equal_calls_under_gather_are_told_apart_and_answered_each() -> None:
    async def at_once(state: State) -> dict[str, Any]:
        step = current_step()
        calls = [step.call_tool("shop", "price", {"item": item}) for item in state["items"]]
        return {"prices": await asyncio.gather(*calls)}

    journal = Shop()
    final = await durable(node=at_once).execute(journal, {"items": ["oil", "oil", "oil"]})
    assert final["prices"] == [9]
    assert len({e.payload["call_id"] for e in journal.log if e.event_type == ASKED}) == 3


async def test_a_tool_that_fails_is_the_node_s_error() -> None:
    journal = Shop(price=lambda item: f"no {item} today")
    with pytest.raises(CapabilityError, match=r"tool\.shop\.price failed at shop-1: no oil today"):
        await durable().execute(journal, {"items": ["oil"]})


async def test_a_tool_that_nobody_offers_is_said_with_its_id() -> None:
    async def wrong(state: State) -> dict[str, Any]:
        return {"prices": [await current_step().call_tool("shop", "prize", on_unresolved="fail")]}

    journal = Shop()
    with pytest.raises(CapabilityNotFoundError, match=r"tool\.shop\.prize"):
        await durable(node=wrong).execute(journal, {"items": []})
    [unresolved] = [e for e in journal.log if e.event_type == "capability.unresolved"]
    assert unresolved.payload["capability_id"] == "tool.shop.prize"


@pytest.mark.parametrize("name", ["", "my shop", "a.b", "ä", "x" * 101, 7])
async def test_a_name_that_no_tool_can_have_is_refused(name: Any) -> None:
    async def wrong(state: State) -> dict[str, Any]:
        return {"prices": [await current_step().call_tool(name, "price")]}

    with pytest.raises(ConfigError, match="cannot name a toolkit"):
        await durable(ExecutionMode.PRAGMATIC, wrong).execute(Shop(), {"items": []})


async def test_arguments_without_names_are_refused() -> None:
    async def wrong(state: State) -> dict[str, Any]:
        return {"prices": [await current_step().call_tool("shop", "price", ["oil"])]}  # type: ignore[arg-type]

    journal = Shop()
    with pytest.raises(StateError, match=r"tool\.shop\.price has list as its arguments"):
        await durable(node=wrong).execute(journal, {"items": []})
    assert ASKED not in journal.types()


async def test_the_refusal_of_a_direct_effect_names_call_tool() -> None:
    async def direct(state: State) -> dict[str, Any]:
        return {"prices": [await current_step().effect("price", len, "oil")]}

    with pytest.raises(StrictModeError) as caught:
        await durable(node=direct).execute(Shop(), {"items": []})
    assert "step.call_tool" in str(caught.value.hint)


async def test_a_node_cannot_write_the_events_of_a_tool_call_itself() -> None:
    class Forged(DomainEvent, event_type=ANSWERED):
        call_id: str

    def forges(state: State) -> dict[str, Any]:
        return {"prices": [], "_pending_events": [Forged(call_id="x")]}

    with pytest.raises(StateError, match="which the kernel alone writes"):
        await durable(node=forges).execute(Shop(), {"items": []})


async def test_another_call_than_the_recorded_one_is_found_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("noesium_stream.kernel.step.position.PATIENCE_S", 0)
    dead = Shop(dies_at=1, reaches_log=True)
    with pytest.raises(CommitUnknownError):
        await durable().execute(dead, {"items": ["bread", "oil"]})
    journal = Shop(dead.log)
    with pytest.raises(ReplayDivergenceError, match=r'a call of tool\.shop\.price \{"item":"bread"\}'):
        await durable().execute(journal, {"items": ["wine"]})
    assert [e.payload["arguments"] for e in journal.log if e.event_type == ASKED] == [{"item": "bread"}]
