"""`@capability`: what is offered, what a run of it does, and what is refused."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

import noesium_stream.capabilities  # the name `capability` stays the decorator beside it
from noesium_stream import SideEffectClass, agent_from_graph, agent_from_tools, capability, current_step
from noesium_stream.agent import BaseGraphicAgent, BaseHandler
from noesium_stream.client import Client
from noesium_stream.errors import ConfigError, RunFailedError
from noesium_stream.event.standard import Capability, CapabilityType
from noesium_stream.kernel import kernel_node
from noesium_stream.log import open_log
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S


class Parcel(BaseModel):
    item: str
    arrives: date


class Shop(BaseGraphicAgent):
    """Has no graph of its own."""

    agent_type = "shop"

    @capability(side_effects=SideEffectClass.PURE, tags=["prices"])
    def price(self, item: str, currency: str = "EUR") -> int:
        """What an item costs."""
        return {"bread": 3, "oil": 9}[item]

    @capability("parcels.send", version="2.1.0")
    @kernel_node(deterministic=False, entropy_sources=["post"], timeout=timedelta(minutes=1))
    async def send(self, items: list[str], on: date) -> Parcel:
        sent = await current_step().effect("post", str.upper, items[0])
        return Parcel(item=sent, arrives=on + timedelta(days=1))

    def unmarked(self) -> None:
        """Is not offered."""


class Letter(TypedDict, total=False):
    text: str
    words: int


class Counted(TypedDict):
    words: int


@capability("letter.count")
async def count(letter: Letter) -> Counted:
    """Counts words."""
    return {"words": len(letter["text"].split())}


def counting() -> StateGraph[Any, Any, Any, Any]:
    return StateGraph(Letter).add_node(count).add_edge(START, "count")


def asking(name: str, given: dict[str, Any], version: str | None = None) -> type[BaseGraphicAgent]:
    async def ask(state: dict[str, Any]) -> dict[str, Any]:
        return {"reply": await current_step().invoke(name, given, version=version)}

    class Asked(TypedDict, total=False):
        reply: Any

    graph = StateGraph(Asked)
    graph.add_node("ask", ask, input_schema=Asked)
    return agent_from_graph(graph.add_edge(START, "ask"), "asker")


async def reply_of(provider: Any, caller: Any, home: Path) -> Any:
    log = await open_log("memory://")
    async with Worker(log, [provider, caller], home=home), Client(log) as client:
        run = await client.start("asker", {})
        result = (await run.result(timeout=PATIENCE_S))["reply"]
    await log.close()
    return result


def test_a_method_is_offered_with_the_schemas_of_its_annotations() -> None:
    price, send = Shop.capabilities
    assert (price.id, price.version, price.description) == ("shop.price", "1.0.0", "What an item costs.")
    assert (price.side_effects, price.tags) == (SideEffectClass.PURE, ["prices"])
    assert price.input_schema["required"] == ["item"]
    assert price.input_schema["properties"]["currency"]["default"] == "EUR"
    assert price.output_schema == {"type": "integer"}
    assert (send.id, send.version, send.side_effects) == ("parcels.send", "2.1.0", SideEffectClass.EXTERNAL)
    assert send.input_schema["properties"]["on"]["format"] == "date"
    assert send.output_schema["properties"]["arrives"]["format"] == "date"


def test_each_way_to_offer_has_its_type_of_rfc_0005() -> None:
    price, send = Shop.capabilities
    (node,) = agent_from_graph(counting(), "counter", capabilities=[count]).capabilities
    tool, marked = agent_from_tools("letters", "letters", [count]).capabilities
    assert price.capability_type is send.capability_type is CapabilityType.IN_PROCESS_TOOL
    assert node.capability_type is CapabilityType.SUBAGENT
    assert tool.capability_type is marked.capability_type is CapabilityType.REMOTE_TOOL


async def test_a_run_calls_the_method_and_its_value_is_the_result(tmp_path: Path) -> None:
    assert await reply_of(Shop, asking("shop.price", {"item": "oil"}), tmp_path) == 9


async def test_the_method_is_a_step_and_takes_and_returns_the_declared_types(tmp_path: Path) -> None:
    caller = asking("parcels.send", {"items": ["bread"], "on": "2026-11-02"}, "^2")
    assert await reply_of(Shop, caller, tmp_path) == {"item": "BREAD", "arrives": "2026-11-03"}


async def test_what_kernel_node_says_of_a_method_holds(tmp_path: Path) -> None:
    log = await open_log("memory://")
    caller = asking("parcels.send", {"items": ["a"], "on": "2026-11-02"})
    async with Worker(log, [Shop, caller], home=tmp_path), Client(log) as client:
        await (await client.start("asker", {})).result(timeout=PATIENCE_S)
        journal = log.topology.journal("shop")
        events = [r.envelope async for r in log.read(journal, {}, until=await log.end(journal))]
    await log.close()
    (entered,) = [e.payload for e in events if e.event_type == "kernel.node.entered"]
    assert entered["node"] == "send"
    assert entered["entropy_sources"] == ["post"]


async def test_a_crash_repeats_no_recorded_call_of_a_method() -> None:
    class Post(BaseGraphicAgent):
        agent_type = "post"

        @capability
        async def send(self, item: str) -> str:
            return str(await current_step().effect("post", lambda: "never called"))

    async with Rehearsal(Post, effects={"post": ["sent"]}) as rehearsal:
        rehearsal.crash_after("effect.completed", 1)
        run = await rehearsal.start({"item": "bread"})  # the only capability may be left out
        assert await run.result() == "sent"
        assert rehearsal.crashes == 1
        assert rehearsal.call_count("post") == 1


async def test_arguments_that_it_does_not_take_fail_the_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"shop\.price does not take these arguments: .*'itme'"):
        await reply_of(Shop, asking("shop.price", {"itme": "oil"}), tmp_path)


async def test_a_run_without_a_capability_says_what_there_is() -> None:
    async with Rehearsal(Shop) as rehearsal:
        run = await rehearsal.start({"item": "oil"})
        with pytest.raises(RunFailedError, match=r"none of shop; it offers shop\.price, parcels\.send"):
            await run.result()


async def test_a_node_of_a_graph_is_offered_and_a_run_executes_the_graph(tmp_path: Path) -> None:
    agent = agent_from_graph(counting(), "counter", capabilities=[count])
    (offered,) = agent.capabilities
    assert (offered.id, offered.description) == ("letter.count", "Counts words.")
    assert set(offered.input_schema["properties"]) == {"text", "words"}
    assert offered.output_schema["required"] == ["words"]
    reply = await reply_of(agent, asking("letter.count", {"text": "one two"}), tmp_path)
    assert reply == {"text": "one two", "words": 2}


def test_a_class_with_a_graph_offers_its_marked_nodes_beside_what_it_declares() -> None:
    plain = Capability(id="letter.plain", input_schema={}, output_schema={})

    class Counter(BaseGraphicAgent):
        agent_type = "counter"
        capabilities = (plain,)

        def get_state_class(self) -> type[Any]:
            return Letter

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            return StateGraph(Letter).add_node("count", self.count).add_edge(START, "count")

        @capability
        async def count(self, letter: Letter) -> Counted:
            return {"words": 1}

    assert [one.id for one in Counter.capabilities] == ["letter.plain", "counter.count"]


def test_a_subclass_offers_what_it_defines_anew() -> None:
    class Dear(Shop):
        agent_type = "dear"

        @capability("parcels.send", version="3.0.0")
        def send(self, item: str) -> str:
            return item

    assert [(one.id, one.version) for one in Dear.capabilities] == [
        ("dear.price", "1.0.0"),
        ("parcels.send", "3.0.0"),
    ]


async def test_a_marked_tool_is_a_capability_as_well(tmp_path: Path) -> None:
    @capability("shop.price", side_effects=SideEffectClass.PURE)
    def price(item: str) -> int:
        return 3

    tools = agent_from_tools("shop", "shop", [price])
    assert [(one.id, one.side_effects) for one in tools.capabilities] == [
        ("tool.shop.price", SideEffectClass.PURE),
        ("shop.price", SideEffectClass.PURE),
    ]
    assert await reply_of(tools, asking("shop.price", {"item": "bread"}), tmp_path) == 3


def test_two_methods_cannot_have_one_id() -> None:
    with pytest.raises(ConfigError, match=r"two functions for the capability a\.b"):

        class Twice(BaseGraphicAgent):
            agent_type = "twice"

            @capability("a.b")
            def one(self) -> int:
                return 1

            @capability("a.b", version="2.0.0")
            def two(self) -> int:
                return 2


@pytest.mark.parametrize("annotation", ["Nowhere", StateGraph])
def test_an_annotation_without_a_schema_is_named(annotation: Any) -> None:
    def bad(self: Any, item: Any) -> None: ...

    bad.__annotations__["item"] = annotation
    with pytest.raises(ConfigError, match=r"No schema can be made of the capability worst\.bad"):
        type("Worst", (BaseGraphicAgent,), {"agent_type": "worst", "bad": capability(bad)})


def test_a_function_that_is_no_node_is_refused_by_an_agent_with_a_graph() -> None:
    def price() -> int:
        return 3

    with pytest.raises(ConfigError, match="is no capability"):
        agent_from_graph(counting(), "counter", capabilities=[price])
    with pytest.raises(ConfigError, match="does not say what its state is"):
        agent_from_graph(counting(), "counter", capabilities=[capability(price)])


def test_a_key_of_a_call_outside_is_no_argument_of_a_method() -> None:
    def pay(self: Any, amount: int, idempotency_key: str) -> None: ...

    with pytest.raises(ConfigError, match="takes idempotency_key"):
        type("Payer", (BaseGraphicAgent,), {"agent_type": "payer", "pay": capability(pay)})


def test_a_value_that_a_capability_does_not_take_is_named() -> None:
    def bad(self: Any) -> None: ...

    with pytest.raises(ConfigError, match="@capability on bad: weight"):
        type("Worst", (BaseGraphicAgent,), {"agent_type": "worst", "bad": capability(weight=-1)(bad)})


def test_the_decorator_is_public_beside_the_package_of_the_registry() -> None:
    assert noesium_stream.capabilities.__name__ == "noesium_stream.capabilities"
    assert noesium_stream.capability is capability


def test_a_handler_has_no_runs_and_can_offer_nothing() -> None:
    def price(self: Any, item: str) -> int:
        return 3

    kind = type("Deaf", (BaseHandler,), {"agent_type": "deaf", "price": capability(price)})
    with pytest.raises(ConfigError, match="Deaf is a handler, which has no runs: it cannot offer price"):
        kind.check()
