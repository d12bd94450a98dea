"""What becomes of the body of a step whose run is evicted: it ends as in a crash, and runs again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.client import Client
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from tests.support.evicting import Host, State, evict_at_once, reached, types
from tests.support.reading import PATIENCE_S, eventually

Node = Callable[..., Any]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    log = await open_log("memory://?partitions=1")
    yield Host(log, tmp_path)
    await log.close()


async def one() -> int:
    return 1


async def plain(state: State) -> State:
    return {"value": await current_step().signal("go")}


async def both(state: State) -> State:
    step = current_step()
    return {"value": (await asyncio.gather(step.signal("go"), step.signal("other")))[0]}


async def both_in_a_group(state: State) -> State:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(current_step().signal("go"))
        group.create_task(current_step().signal("other"))
    return {"value": first.result()}


async def nested(state: State) -> State:
    async def inner() -> Any:
        step = current_step()
        done, _ = await asyncio.wait(
            [asyncio.create_task(step.signal("go")), asyncio.create_task(step.signal("other"))]
        )
        return min(task.result() for task in done)

    return {"value": (await asyncio.gather(asyncio.create_task(inner()), one()))[0]}


async def timer_before(state: State) -> State:
    async with asyncio.timeout(3_600):
        await asyncio.sleep(0)
    return await plain(state)


def in_a_thread(state: State) -> State:
    step = current_step()
    return {"value": step.run_sync(step.signal("go"))}


async def from_a_thread(state: State) -> State:
    threaded = asyncio.to_thread(in_a_thread, state)
    return (await asyncio.gather(threaded, current_step().signal("other")))[0]


def as_a_subgraph(node: Node) -> Any:
    inner = StateGraph(State)
    for name in ("one", "two"):
        inner.add_node(name, node if name == "one" else _nothing)
        inner.add_edge(START, name)
    return inner.compile()


async def _nothing(state: State) -> State:
    return {}


async def streaming(state: State) -> State:
    chunks = [chunk async for chunk in as_a_subgraph(plain).astream(state, stream_mode=["custom", "values"])]
    return {"value": chunks[-1][1]["value"]}


ONLY_WAITS = [
    plain,
    both,
    both_in_a_group,
    nested,
    timer_before,
    in_a_thread,
    from_a_thread,
    as_a_subgraph(plain),
    as_a_subgraph(in_a_thread),
    streaming,
]


@pytest.mark.parametrize("node", ONLY_WAITS, ids=lambda node: getattr(node, "__name__", "subgraph"))
@pytest.mark.parametrize("siblings", [0, 1])
async def test_a_run_that_only_waits_is_evicted_and_goes_on(host: Host, node: Node, siblings: int) -> None:
    async def sibling(state: State) -> State:
        return {"other": await current_step().signal("go")}

    async with host.worker(node, *[sibling] * siblings), Client(host.log) as client:
        run = await client.start("sample", {})
        await host.evicts()
        await run.signal("go", 1)
        await run.signal("other", 2)
        assert (await run.result(timeout=PATIENCE_S))["value"] in (1, None)


@pytest.mark.parametrize("crowded", [False, True])
async def test_what_a_body_does_beside_a_wait_ends_and_what_it_had_journaled_is_not_done_again(
    host: Host, crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def paid() -> int:
        host.bodies["effect"] += 1
        return 1

    async def beside() -> None:
        host.bodies["begun"] += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            host.bodies["ended"] += 1
            raise

    async def node(state: State) -> State:
        step = current_step()
        value = await step.effect("pay", paid, effect_class=SideEffectClass.EXTERNAL)
        working = asyncio.create_task(beside())
        try:
            async with asyncio.timeout(3_600):
                return {"value": value + await step.signal("go")}
        finally:
            working.cancel()

    if crowded:
        evict_at_once(monkeypatch)
    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        if crowded:
            await eventually(lambda: host.evicted == 1)
        else:
            await host.evicts()
        await eventually(lambda: host.bodies["ended"] == 1)
        await run.signal("go", 1)
        assert (await run.result(timeout=PATIENCE_S))["value"] == 2
        assert host.bodies == {"effect": 1, "begun": 2, "ended": 2}
        assert (await types(run)).count("effect.requested") == 1


async def test_a_body_whose_own_timer_ends_its_wait_within_the_minute_is_not_evicted_before(
    host: Host,
) -> None:
    async def node(state: State) -> State:
        try:
            return {"value": await asyncio.wait_for(current_step().signal("never"), 0.05)}
        except TimeoutError:
            return {"value": 1}

    async with host.worker(node), Client(host.log) as client:
        run = await client.start("sample", {})
        result = asyncio.ensure_future(run.result(timeout=PATIENCE_S))
        while not result.done():
            host.sweep()
            await asyncio.sleep(0)
        assert (await result)["value"] == 1
        assert (await types(run)).count("kernel.node.entered") == 1


async def test_a_body_that_does_not_wait_on_the_log_keeps_its_run_loaded(host: Host) -> None:
    gate = asyncio.Event()

    async def node(state: State) -> State:
        await gate.wait()
        return {"other": 1}

    async with host.worker(plain, node), Client(host.log) as client:
        run = await client.start("sample", {})
        await reached(run, "kernel.node.entered")
        for _ in range(3):
            await host.idle_for()
        assert host.evicted == 0
        gate.set()
        await host.evicts()
        await run.signal("go", 2)
        assert (await run.result(timeout=PATIENCE_S))["value"] == 2
