"""A call that comes twice is made once and answered once: two agents on the embedded log, end to end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph, agent_from_tools
from noesium_stream.client import Client, Run
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import SideEffectClass, ToolInvocationRequested
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker import Worker
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S, stored

ASKED, ANSWERED = "tool.invocation.requested", "tool.invocation.completed"
PRICES = {"bread": 3, "oil": 9, "salt": 1}


class Basket(TypedDict, total=False):
    item: str
    price: int


class Prices:
    """What the shop is asked; a price is named when `go` is set."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.called = asyncio.Event()
        self.go = asyncio.Event()

    async def price(self, item: str) -> int:
        """What an item costs."""
        self.asked[item] += 1
        self.called.set()
        await self.go.wait()
        return PRICES[item]

    def shop(self) -> Any:
        async def price(item: str) -> int:
            """What an item costs."""
            return await self.price(item)

        return agent_from_tools("shop", "shop", [price], effect_class=SideEffectClass.EXTERNAL)


async def buy(state: Basket) -> dict[str, Any]:
    return {"price": await current_step().call_tool("shop", "price", {"item": state["item"]})}


Buyer = agent_from_graph(StateGraph(Basket).add_sequence([("buy", buy)]).add_edge(START, "buy"), "buyer")


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"sqlite:///{tmp_path / 'log.db'}?partitions=1")
    yield log
    await log.close()


def worker(log: EventLog, home: Path, agent: Any) -> Worker:
    return Worker(log, [agent], home=home)


def again(asked: EventEnvelope, *, same: bool) -> EventEnvelope:
    """The command once more: the event itself, or another one of the same producer under the same key."""
    if same:
        return asked
    event = ToolInvocationRequested(**{**asked.payload, "arguments": {"item": "oil"}})
    return event.to_envelope(
        asked.producer,
        asked.trace,
        partition_key=asked.partition_key,
        idempotency_key=asked.idempotency_key,
        metadata=asked.metadata,
    )


async def of_run(log: EventLog, topic: str, run: Run) -> list[Record]:
    return [record for record in await stored(log, topic) if record.key == run.id]


async def all_dealt_with(client: Client) -> None:
    """Return when the shop has dealt with what lies in its inbox by now: another call lies behind that."""
    await (await client.start("buyer", {"item": "salt"})).result(timeout=PATIENCE_S)


@pytest.mark.parametrize("same", [True, False], ids=["the same event", "another event"])
@pytest.mark.parametrize("when", ["it waits", "it runs", "it has ended", "it has ended at another worker"])
async def test_a_call_that_comes_again_is_made_once_and_has_the_first_answer(
    log: EventLog, tmp_path: Path, when: str, same: bool
) -> None:
    prices, other = Prices(), Prices()
    other.go.set()
    async with asyncio.timeout(4 * PATIENCE_S), Client(log) as client:
        async with worker(log, tmp_path, prices.shop()):
            pass  # the shop is known
        async with worker(log, tmp_path / "buyer", Buyer):
            run = await client.start("buyer", {"item": "bread"})
            asked = await reached(run, ASKED)
            if when == "it waits":
                await log.append([again(asked, same=same)])
            async with worker(log, tmp_path, prices.shop()):
                await prices.called.wait()
                if when == "it runs":
                    await log.append([again(asked, same=same)])
                prices.go.set()
                assert (await run.result(timeout=PATIENCE_S))["price"] == PRICES["bread"]
                if when == "it has ended":
                    await log.append([again(asked, same=same)])
                await all_dealt_with(client)
            if when == "it has ended at another worker":
                await log.append([again(asked, same=same)])
                async with worker(log, tmp_path / "another", other.shop()):
                    await all_dealt_with(client)
        child = await client.get_run(asked.payload["run_id"])
        # Who asks for the run again sees what the first one was answered.
        assert await child.result(timeout=PATIENCE_S) == PRICES["bread"]
    assert prices.asked + other.asked == {"bread": 1, "salt": prices.asked["salt"] + other.asked["salt"]}
    inbox, journal = log.topology.inbox("buyer"), log.topology.journal("buyer")
    [answer] = [record for record in await of_run(log, inbox, run) if record.event_type == ANSWERED]
    assert answer.envelope.payload["result"] == PRICES["bread"]
    copies = [record for record in await of_run(log, journal, run) if record.event_type == ANSWERED]
    assert [copy.envelope.event_id for copy in copies] == [answer.envelope.event_id]
    types = Counter(record.event_type for record in await of_run(log, log.topology.journal("shop"), child))
    assert types["run.started"] == types["run.completed"] == types[ASKED] == types[ANSWERED] == 1
    assert not await stored(log, log.topology.dlq)


async def test_a_caller_that_is_started_twice_by_its_key_calls_once_and_both_have_the_answer(
    log: EventLog, tmp_path: Path
) -> None:
    prices = Prices()
    async with (
        asyncio.timeout(4 * PATIENCE_S),
        Client(log) as client,
        worker(log, tmp_path, prices.shop()),
        worker(log, tmp_path, Buyer),
    ):
        first = await client.start("buyer", {"item": "bread"}, idempotency_key="order-1")
        await prices.called.wait()
        second = await client.start("buyer", {"item": "oil"}, idempotency_key="order-1")
        prices.go.set()
        assert (await first.result(timeout=PATIENCE_S))["price"] == PRICES["bread"]
        third = await client.start("buyer", {"item": "oil"}, idempotency_key="order-1")
        await all_dealt_with(client)
        for one in (second, third):
            assert (await one.result(timeout=PATIENCE_S))["price"] == PRICES["bread"]
    assert prices.asked == {"bread": 1, "salt": 1}
    types = Counter(record.event_type for record in await of_run(log, log.topology.inbox("buyer"), first))
    assert types == {"run.requested": 3, ANSWERED: 1}
