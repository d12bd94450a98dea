"""Effects whose outcome is not plain: a call that took too long, a result without JSON, a way not taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import RunFailedError
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.effects import reached
from tests.support.graphs import running
from tests.support.reading import PATIENCE_S

RETRY = RetryPolicy(initial_interval=0.001, jitter=False, max_attempts=3, retry_on=Exception)


def single(node: Any, retry: RetryPolicy | None = None) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(dict)
    graph.add_node("node", node, retry_policy=retry)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return graph


@pytest.mark.parametrize(
    ("effect_class", "how", "calls"),
    [
        ("external", "too long", 1),
        ("external", "no JSON", 1),
        ("idempotent", "too long", 3),
        ("idempotent", "no JSON", 1),  # it would have none the next time either
    ],
)
async def test_what_may_have_been_done_outside_is_done_again_only_if_it_is_idempotent(
    tmp_path: Path, effect_class: str, how: str, calls: int
) -> None:
    called = Counter[str]()

    async def outside() -> Any:
        called["outside"] += 1
        if how == "too long":
            await asyncio.Event().wait()
        return object()

    async def node(state: dict[str, Any]) -> None:
        await current_step().effect(
            "pay", outside, effect_class=SideEffectClass(effect_class), timeout=timedelta(milliseconds=20)
        )

    async with running(single(node, RETRY), tmp_path) as client:
        run = await client.start("sample", {})
        if effect_class == "external":
            waiting = await reached(run, "effect.outcome.unknown")
            await run.resolve_effect(waiting.payload["effect_id"], "result", None)
            await run.result(timeout=PATIENCE_S)
        else:
            with pytest.raises(RunFailedError):
                await run.result(timeout=PATIENCE_S)
        types = Counter([event.event_type async for event in run.events(follow=False)])
    assert called["outside"] == calls
    assert types["effect.outcome.unknown"] == (effect_class == "external")


async def test_a_failure_that_the_node_has_seen_is_seen_again_after_a_crash_and_nothing_is_called(
    tmp_path: Path,
) -> None:
    called = Counter[str]()
    crashed = False

    def outside(name: str) -> str:
        called[name] += 1
        if name == "first":
            raise ValueError("told to fail")
        return name

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        try:
            value = await step.effect("first", outside, "first")
        except ValueError:
            value = await step.effect("second", outside, "second")
        if not crashed:
            await step.signal("never")
        return {"value": value}

    log = await open_log("memory://")
    agents = [agent_from_graph(single(node))]
    async with Client(log) as client:
        async with Worker(log, agents, home=tmp_path):
            run = await client.start("sample", {})
            async with asyncio.timeout(PATIENCE_S):
                async for event in run.events():
                    if event.event_type == "effect.completed":
                        break
        crashed = True
        async with Worker(log, agents, home=tmp_path):
            assert (await run.result(timeout=PATIENCE_S))["value"] == "second"
    await log.close()
    assert called == {"first": 1, "second": 1}


async def test_a_retry_asks_again_where_the_answer_was_an_error_and_only_there(tmp_path: Path) -> None:
    asked = Counter[str]()

    def answer(state: dict[str, Any]) -> dict[str, Any]:
        asked[state["word"]] += 1
        if state["word"] == "flaky" and asked["flaky"] == 1:
            raise ValueError("told to fail")
        return {"reply": state["word"]}

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        step = current_step()
        return {"replies": [(await step.invoke("x.y", {"word": w}))["reply"] for w in ("good", "flaky")]}

    provider = agent_from_graph(single(answer), "provider")
    provider.capabilities = (
        Capability(id="x.y", input_schema={"type": "object"}, output_schema={"type": "object"}),
    )
    log = await open_log("memory://")
    agents = [provider, agent_from_graph(single(node, RETRY))]
    async with Worker(log, agents, home=tmp_path), Client(log) as client:
        run = await client.start("sample", {})
        assert (await run.result(timeout=PATIENCE_S))["replies"] == ["good", "flaky"]
    await log.close()
    assert asked == {"good": 1, "flaky": 2}


async def test_a_function_that_takes_an_idempotency_key_is_given_the_effect_s(tmp_path: Path) -> None:
    keys: list[str] = []

    async def pay(order: int, *, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise ConnectionError("once more")
        return "paid"

    async def node(state: dict[str, Any]) -> None:
        await current_step().effect("pay", pay, 7)

    async with running(single(node, RETRY), tmp_path) as client:
        run = await client.start("sample", {})
        await run.result(timeout=PATIENCE_S)
        requested = [e.payload async for e in run.events(follow=False) if e.event_type == "effect.requested"]
    assert keys == [payload["idempotency_key"] for payload in requested]
    assert len(set(keys)) == 2
    assert requested[0]["arguments"] == {"args": [7], "kwargs": {}}


@pytest.mark.parametrize("effect_class", list(SideEffectClass))
async def test_an_outcome_is_on_the_log_while_its_node_goes_on(
    effect_class: SideEffectClass, tmp_path: Path
) -> None:
    seen = asyncio.Event()

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        result = await current_step().effect("call", str, 7, effect_class=effect_class)
        await seen.wait()
        return {"result": result}

    log = await open_log("memory://?partitions=1")
    agent = agent_from_graph(single(node), agent_type="patient")
    async with Worker(log, [agent], home=tmp_path), Client(log) as client:
        run = await client.start("patient", {})
        async for event in run.events():
            if event.event_type == "effect.completed":
                seen.set()
        assert (await run.result(timeout=PATIENCE_S))["result"] == "7"
    await log.close()
