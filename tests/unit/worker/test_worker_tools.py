"""Tools of another agent, called by event from a STRICT one: two agents on SQLite, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph, agent_from_tools
from noesium_stream.capabilities.tools import tool_capability
from noesium_stream.client import Client, Run
from noesium_stream.client.operate.fork import fork
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.clock import VirtualClock
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import CommitUnknownError, ConfigError, RunCancelledError, RunFailedError
from noesium_stream.event import AgentRef, EventEnvelope
from noesium_stream.event.standard import (
    CapabilityCompleted,
    SideEffectClass,
    ToolInvocationCompleted,
    ToolInvocationRequested,
)
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S, expired

ASKED, ANSWERED = "tool.invocation.requested", "tool.invocation.completed"
PRICES = {"bread": 3, "oil": 9}
called: Counter[str] = Counter()


class Basket(TypedDict, total=False):
    items: list[str]
    total: int


async def price(item: str, currency: str = "EUR") -> int:
    """What an item costs."""
    called[item] += 1
    return PRICES[item]


def order(items: list[str], on: date, idempotency_key: str) -> str:
    """Order items for a day."""
    called[idempotency_key] += 1
    return f"{len(items)} for {on:%d.%m.%Y}"


Shop = agent_from_tools("shop", "shop", [price, order], effect_class=SideEffectClass.IDEMPOTENT)


async def sum_up(state: Basket) -> dict[str, Any]:
    step = current_step()
    return {"total": sum([await step.call_tool("shop", "price", {"item": i}) for i in state["items"]])}


def calling(node: Any, mode: ExecutionMode = ExecutionMode.STRICT) -> Any:
    graph = StateGraph(Basket)
    graph.add_node("sum_up", node)
    graph.add_edge(START, "sum_up")
    return agent_from_graph(graph, "buyer", execution_mode=mode)


Buyer = calling(sum_up)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    called.clear()
    log = await open_log(f"sqlite:///{tmp_path / 'log.db'}")
    yield log
    await log.close()


def worker(log: EventLog, home: Path, *agents: Any) -> Worker:
    return Worker(log, agents, home=home)


async def events_of(run: Run) -> list[EventEnvelope]:
    return [event async for event in run.events(follow=False)]


async def asked_of(run: Run) -> EventEnvelope:
    async for event in run.events():
        if event.event_type == ASKED:
            return event
    raise AssertionError("the run ended before it asked")


async def open_call(client: Client, log: EventLog, home: Path) -> tuple[Run, EventEnvelope]:
    """A run of the buyer, whose worker must be there, that waits for a shop that nobody works for."""
    run = await client.start("buyer", {"items": ["bread"]})
    return run, await asked_of(run)


async def letters(log: EventLog) -> list[EventEnvelope]:
    dlq = log.topology.dlq
    return [record.envelope async for record in log.read(dlq, {}, until=await log.end(dlq))]


async def test_a_strict_agent_has_another_one_call_its_tools(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path, Shop, Buyer), Client(log) as client:
        run = await client.start("buyer", {"items": ["bread", "oil"]})
        assert (await run.result(timeout=PATIENCE_S))["total"] == 12
        events = await events_of(run)
        types = [event.event_type for event in events]
        assert types.count(ASKED) == types.count(ANSWERED) == 2
        assert not {"capability.invoked", "capability.completed", "effect.requested"} & set(types)
        children = [info for info in await client.list_runs() if info.agent_type == "shop"]
        assert [(info.status, info.label) for info in children] == [
            ("completed", "oil"),
            ("completed", "bread"),
        ]
        assert {info.parent_run_id for info in children} == {run.id}
        child = await client.get_run(children[0].run_id)
        inner = await events_of(child)
    assert called == {"bread": 1, "oil": 1}
    asked = next(event for event in events if event.event_type == ASKED)
    assert [event.event_type for event in inner][:2] == [ASKED, "run.started"]
    assert inner[1].trace.trace_id == asked.trace.trace_id
    assert inner[1].trace.depth == asked.trace.depth + 1
    assert {event.correlation_id for event in inner} == {run.id}
    answer = next(event for event in inner if event.event_type == ANSWERED)
    assert (answer.payload["result"], answer.payload["error"]) == (9, None)
    assert [event.event_id for event in events].count(answer.event_id) == 1, "the same event in both journals"


async def test_the_tree_of_a_run_shows_the_tool_and_the_run_of_it(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path, Shop, Buyer), Client(log) as client:
        run = await client.start("buyer", {"items": ["oil"]})
        await run.result(timeout=PATIENCE_S)
        [child] = [info for info in await client.list_runs() if info.agent_type == "shop"]
        events = [*await events_of(run), *await events_of(await client.get_run(child.run_id))]
    [call] = causal_tree(run.id, events).calls
    assert (call.capability_id, call.output, call.error) == ("tool.shop.price", 9, None)
    assert call.run is not None
    assert (call.run.agent_type, call.run.status, call.run.input) == ("shop", "completed", {"item": "oil"})


async def test_both_runs_can_be_verified_without_calling_the_tool(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path, Shop, Buyer), Client(log) as client:
        run = await client.start("buyer", {"items": ["oil", "bread"]})
        await run.result(timeout=PATIENCE_S)
        before = Counter(called)
        for info in await client.list_runs():
            kind = Buyer if info.agent_type == "buyer" else Shop
            verdict = await verify(await client.get_run(info.run_id), agent_target(kind, log))
            assert verdict.difference is None, str(verdict.difference)
    assert called == before


async def test_arguments_get_the_types_that_the_function_declares(log: EventLog, tmp_path: Path) -> None:
    async def orders(state: Basket) -> Any:
        asked = {"items": state["items"], "on": "2026-11-22"}
        assert await current_step().call_tool("shop", "order", asked) == "2 for 22.11.2026"

    async with worker(log, tmp_path, Shop, calling(orders)), Client(log) as client:
        await (await client.start("buyer", {"items": ["a", "b"]})).result(timeout=PATIENCE_S)
    assert len(called) == 1, "it was given an idempotency key"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "input.item: is missing"),
        ({"item": 5}, 'input.item: 5 is not of type "string"'),
        ({"item": "oil", "colour": "red"}, r"input: Additional properties .*'colour' was unexpected"),
    ],
)
async def test_arguments_that_a_tool_does_not_take_never_reach_it(
    log: EventLog, tmp_path: Path, arguments: dict[str, Any], reason: str
) -> None:
    async def wrong(state: Basket) -> Any:
        await current_step().call_tool("shop", "price", arguments)

    async with worker(log, tmp_path, Shop, calling(wrong)), Client(log) as client:
        run = await client.start("buyer", {})
        with pytest.raises(RunFailedError, match=f"does not take these arguments: {reason}"):
            await run.result(timeout=PATIENCE_S)
        assert [info.agent_type for info in await client.list_runs()] == ["buyer"]
    assert not called


async def test_a_tool_that_raises_fails_the_caller_with_its_words(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path, Shop, Buyer), Client(log) as client:
        run = await client.start("buyer", {"items": ["wine"]})
        with pytest.raises(RunFailedError, match=r"tool\.shop\.price failed at shop: 'wine'"):
            await run.result(timeout=PATIENCE_S)
        [answer] = [e for e in await events_of(run) if e.event_type == ANSWERED]
    assert answer.payload["error_type"] == "KeyError"


async def test_a_graph_of_one_s_own_serves_a_tool(log: EventLog, tmp_path: Path) -> None:
    class Asked(TypedDict, total=False):
        item: str
        price: int

    graph = StateGraph(Asked)
    graph.add_node("look", lambda state: {"price": PRICES[state["item"]]})
    graph.add_edge(START, "look")
    shop = agent_from_graph(graph, "shop", capabilities=(tool_capability("shop", "price"),))

    async def buys(state: Basket) -> dict[str, Any]:
        return {"total": (await current_step().call_tool("shop", "price", {"item": "oil"}))["price"]}

    async with worker(log, tmp_path, shop, calling(buys)), Client(log) as client:
        assert (await (await client.start("buyer", {})).result(timeout=PATIENCE_S))["total"] == 9


async def test_a_call_goes_on_with_the_next_worker_and_is_made_once(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path, Shop):
            pass
        async with worker(log, tmp_path, Buyer):
            run, _ = await open_call(client, log, tmp_path)
        async with worker(log, tmp_path, Shop, Buyer):
            assert (await run.result(timeout=PATIENCE_S))["total"] == 3
    types = [event.event_type for event in await events_of(run)]
    assert types.count(ASKED) == types.count(ANSWERED) == 1
    assert called == {"bread": 1}


async def test_a_command_that_comes_twice_is_one_run(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path, Shop):
            pass
        async with worker(log, tmp_path, Buyer):
            run, asked = await open_call(client, log, tmp_path)
        await log.append([asked])
        async with worker(log, tmp_path, Shop, Buyer):
            assert (await run.result(timeout=PATIENCE_S))["total"] == 3
            shops = [info for info in await client.list_runs() if info.agent_type == "shop"]
    assert len(shops) == 1
    assert called == {"bread": 1}


def answer(asked: EventEnvelope, producer: str, **changed: Any) -> EventEnvelope:
    """An answer to a call, as `producer` would send it."""
    payload = asked.payload
    given = {
        "run_id": payload["run_id"],
        "call_id": payload["call_id"],
        "caller_run_id": payload["caller_run_id"],
        "capability_id": payload["capability_id"],
        "provider_agent_id": "shop",
        "toolkit_name": "shop",
        "tool_name": "price",
        "result": 1_000,
    }
    return _to_caller(ToolInvocationCompleted(**{**given, **changed}), asked, producer)


def _to_caller(event: Any, asked: EventEnvelope, producer: str) -> EventEnvelope:
    caller, to = asked.payload["caller_run_id"], {"to": "buyer"}
    return event.to_envelope(AgentRef(producer, "shop"), asked.trace, partition_key=caller, metadata=to)


def of_the_other_kind(asked: EventEnvelope) -> EventEnvelope:
    payload = asked.payload
    completed = CapabilityCompleted(
        run_id=payload["run_id"],
        call_id=payload["call_id"],
        caller_run_id=payload["caller_run_id"],
        capability_id="tool.shop.price",
        provider_agent_id="shop",
        output=1_000,
    )
    return _to_caller(completed, asked, "shop")


FORGED = {
    "from another agent": (lambda asked: answer(asked, "mallory"), "the call was made to shop"),
    "from another provider": (
        lambda asked: answer(asked, "mallory", provider_agent_id="mallory"),
        "the call was made to shop",
    ),
    "without a provider": (
        lambda asked: answer(asked, "shop", provider_agent_id=None),
        "the call was made to shop",
    ),
    "to no call": (lambda asked: answer(asked, "shop", call_id="none"), "the run made no call none"),
    "of the other kind": (of_the_other_kind, f"is no answer to {ASKED}"),
}


@pytest.mark.parametrize("which", FORGED)
async def test_a_forged_answer_is_a_dead_letter_and_the_true_one_counts(
    log: EventLog, tmp_path: Path, which: str
) -> None:
    forge, reason = FORGED[which]
    async with Client(log) as client:
        async with worker(log, tmp_path, Shop):
            pass
        async with worker(log, tmp_path, Buyer):
            run, asked = await open_call(client, log, tmp_path)
            await log.append([forge(asked)])
            async with worker(log, tmp_path, Shop):
                assert (await run.result(timeout=PATIENCE_S))["total"] == 3
    [letter] = await letters(log)
    assert reason in letter.payload["failure_reason"]


async def test_an_answer_that_comes_twice_counts_once(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path, Shop):
            pass
        async with worker(log, tmp_path, Buyer):
            run, asked = await open_call(client, log, tmp_path)
            first = answer(asked, "shop", result=5)
            await log.append([first, first, answer(asked, "shop", result=6)])
            assert (await run.result(timeout=PATIENCE_S))["total"] == 5
    assert [event.event_type for event in await events_of(run)].count(ANSWERED) == 1
    assert not await letters(log)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"target_agent_type": "bank"}, "is for agents of type bank"),
        ({"tool_name": "order"}, "is not that of the tool that is asked for"),
        ({"reply_to": None}, "nobody waits for the answer"),
        ({"run_id": None}, "the run is None"),
    ],
)
async def test_what_is_no_command_for_a_tool_is_a_dead_letter(
    log: EventLog, tmp_path: Path, changed: dict[str, Any], reason: str
) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path, Shop):
            pass
        async with worker(log, tmp_path, Buyer):
            run, asked = await open_call(client, log, tmp_path)
        wrong = ToolInvocationRequested(**{**asked.payload, **changed})
        to = {"to": "shop"}
        key = asked.partition_key
        await log.append([wrong.to_envelope(asked.producer, asked.trace, partition_key=key, metadata=to)])
        async with worker(log, tmp_path, Shop, Buyer):
            assert (await run.result(timeout=PATIENCE_S))["total"] == 3
    assert any(reason in letter.payload["failure_reason"] for letter in await letters(log))


async def test_cancel_ends_the_run_of_the_tool_too(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path, Shop):
            pass
        async with worker(log, tmp_path, Buyer):
            run, asked = await open_call(client, log, tmp_path)
            await run.cancel("not needed")
            with pytest.raises(RunCancelledError, match="not needed"):
                await run.result(timeout=PATIENCE_S)
        async with worker(log, tmp_path, Shop):
            child = await client.get_run(asked.payload["run_id"])
            with pytest.raises(RunCancelledError):
                await child.result(timeout=PATIENCE_S)
    assert not called


async def test_a_tool_call_that_has_expired_is_not_made(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with worker(log, tmp_path, Shop):
            pass
        async with worker(log, tmp_path, Buyer):
            run, asked = await open_call(client, log, tmp_path)
        late = asked.replace(event_id=VirtualClock().uuid7(), ttl_ms=1)
        other = "0199a000-0000-7000-8000-0000000000aa"
        reply_to = {**asked.payload["reply_to"], "call_id": other}
        payload = {**asked.payload, "run_id": other, "call_id": other, "reply_to": reply_to}
        late = late.replace(partition_key=other, payload=payload)
        await log.append([late])
        await expired()
        async with worker(log, tmp_path, Shop, Buyer):
            with pytest.raises(RunFailedError, match="ttl 1 ms"):
                await (await client.get_run(other)).result(timeout=PATIENCE_S)
            assert (await run.result(timeout=PATIENCE_S))["total"] == 3
    assert called == {"bread": 1}
    sent = [event.event_type for event in await events_of(await Client(log).get_run(other))]
    assert sent.count(ANSWERED) == 1, "whoever waits hears of it"


COMMITS = 12
"""More than both runs of the test below need."""


@pytest.mark.parametrize("at", range(1, COMMITS + 1))
@pytest.mark.parametrize("reaches_log", [True, False])
async def test_both_runs_survive_a_commit_that_fails(tmp_path: Path, at: int, reaches_log: bool) -> None:
    called.clear()
    inner = await open_log(f"sqlite:///{tmp_path / 'log.db'}")
    failing = FailingLog(
        inner, lambda count, _: count == at, CommitUnknownError("told to"), reaches_log=reaches_log
    )
    log: EventLog = failing  # type: ignore[assignment]
    async with worker(log, tmp_path, Shop, Buyer), Client(log) as client:
        run = await client.start("buyer", {"items": ["bread"]})
        assert (await run.result(timeout=PATIENCE_S))["total"] == 3
        for info in await client.list_runs():
            types = Counter([e.event_type for e in await events_of(await client.get_run(info.run_id))])
            assert types[ASKED] == types[ANSWERED] == types["run.completed"] == 1
    assert called["bread"] <= 2, "an idempotent tool may be called again under the same key"
    assert failing.commits < COMMITS
    await inner.close()


async def test_a_rehearsal_answers_tools_from_a_script() -> None:
    async with Rehearsal(Buyer, capabilities={"tool.shop.price": [3, 9]}) as rehearsal:
        rehearsal.crash_after(ASKED, 2)
        run = await rehearsal.start({"items": ["bread", "oil"]})
        assert (await run.result())["total"] == 12
        types = Counter(event.event_type for event in await run.history())
    assert types[ASKED] == types[ANSWERED] == 2


async def test_a_fork_calls_its_tools_again(log: EventLog, tmp_path: Path) -> None:
    async with worker(log, tmp_path, Shop, Buyer), Client(log) as client:
        run = await client.start("buyer", {"items": ["oil"]})
        await run.result(timeout=PATIENCE_S)
        branch = await fork(client, run, 0, {"items": ["bread"]}, agent_target(Buyer, log))
        assert (await branch.result(timeout=PATIENCE_S))["total"] == 3
    assert called == {"oil": 1, "bread": 1}


def no_names(*items: str) -> int:
    return 0


def no_schema(item: EventLog) -> int:
    return 0


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ([], "has no tools"),
        ([price, price], "two tools price"),
        ([lambda item: 0], "'<lambda>' cannot name a tool"),
        ([no_names], r"the parameter \*items|The parameter \*items"),
        ([no_schema], "No schema can be made of the tool shop.no_schema"),
    ],
)
def test_functions_that_cannot_be_tools_are_refused_when_the_agent_is_made(tools: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        agent_from_tools("shop", "shop", tools)


def test_what_a_tool_takes_and_gives_is_read_from_its_annotations() -> None:
    first, second = Shop.capabilities
    assert (first.id, first.description) == ("tool.shop.price", "What an item costs.")
    assert first.input_schema["properties"].keys() == {"item", "currency"}
    assert first.input_schema["required"] == ["item"]
    assert first.output_schema == {"type": "integer"}
    assert second.input_schema["properties"].keys() == {"items", "on"}, "its key is not the caller's to give"
    assert second.side_effects is SideEffectClass.IDEMPOTENT
