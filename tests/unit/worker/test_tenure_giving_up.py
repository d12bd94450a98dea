"""A partition that is given up in order loses nothing of what its runs were doing outside."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.kernel.activity import Activity
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("calm")

LONG_S = 60.0


class Both(TypedDict, total=False):
    first: str
    late: str


class Paying:
    """Two nodes, each with an effect that ends when `go` is set; `begun` counts how often each was called."""

    def __init__(self, *, sync: bool, kind: SideEffectClass = SideEffectClass.EXTERNAL) -> None:
        self.sync, self.kind = sync, kind
        self.begun = Counter[str]()
        self.go = threading.Event()
        self.loop = asyncio.get_running_loop()

    def agent(self) -> Any:
        graph = StateGraph(dict)
        for before, name in ((START, "first"), ("first", "second")):
            graph.add_node(name, self.node(name))
            graph.add_edge(before, name)
        return agent_from_graph(graph)

    def node(self, name: str) -> Callable[[Any], Awaitable[Any]]:
        async def body(state: Any) -> Any:
            call = self.pay_in_thread if self.sync else self.pay
            return {**state, name: await current_step().effect(name, call, name, effect_class=self.kind)}

        return body

    async def pay(self, name: str) -> str:
        self.begun[name] += 1
        await eventually(self.go.is_set)
        return f"paid {name}"

    def pay_in_thread(self, name: str) -> str:
        self.begun[name] += 1
        assert self.go.wait(LONG_S)
        return f"paid {name}"


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


async def types_of(run: Run) -> Counter[str]:
    return Counter([event.event_type async for event in run.events(follow=False)])


@pytest.mark.parametrize("kind", [SideEffectClass.EXTERNAL, SideEffectClass.IDEMPOTENT])
@pytest.mark.parametrize("sync", [False, True])
async def test_an_effect_that_is_under_way_when_a_worker_ends_is_recorded_and_nothing_new_begins(
    log: EventLog, tmp_path: Path, sync: bool, kind: SideEffectClass
) -> None:
    paying = Paying(sync=sync, kind=kind)
    said: list[str] = []
    async with Client(log) as client:
        agents = [paying.agent()]
        async with Worker(log, agents, home=tmp_path, progress=said.append, grace=LONG_S) as worker:
            run = await client.start("sample", {})
            await eventually(lambda: paying.begun["first"])
            closing = asyncio.create_task(worker.close())
            await eventually(lambda: said)
            assert not closing.done()
            paying.go.set()
            await closing
        types = await types_of(run)
        assert types["effect.completed"] == 1
        assert types["effect.requested"] == 1
        assert paying.begun == {"first": 1}, "nothing new has begun"
        assert said == [f"waiting for 1 effect under way, for {LONG_S:g} s at most"]
        async with Worker(log, [paying.agent()], home=tmp_path):
            assert await run.result(timeout=PATIENCE_S) == {"first": "paid first", "second": "paid second"}
        types = await types_of(run)
        assert types["effect.outcome.unknown"] == 0
        assert paying.begun == {"first": 1, "second": 1}


@pytest.mark.parametrize("sync", [False, True])
async def test_what_outlasts_the_grace_is_left_and_the_reason_is_true(
    log: EventLog, tmp_path: Path, sync: bool
) -> None:
    paying = Paying(sync=sync)
    said: list[str] = []
    async with Client(log) as client:
        async with Worker(log, [paying.agent()], home=tmp_path, progress=said.append, grace=0.01):
            run = await client.start("sample", {})
            await eventually(lambda: paying.begun["first"])
        assert said[-1] == "1 effect did not end in time: what came of it the next owner does not know"
        async with Worker(log, [paying.agent()], home=tmp_path):
            async for event in run.events():
                if event.event_type == "effect.outcome.unknown":
                    break
            assert event.payload["reason"] == (
                "its owner gave the partition up while the call was under way, or died"
            )
    paying.go.set()


async def test_a_partition_that_goes_to_a_second_worker_takes_the_result_along(tmp_path: Path) -> None:
    paying = Paying(sync=False)
    log = await open_log("memory://?partitions=2")
    said: list[str] = []
    home = tmp_path / "first"
    async with Client(log) as client:  # noqa: SIM117
        async with Worker(log, [paying.agent()], home=home, progress=said.append, grace=LONG_S):
            runs = [await client.start("sample", {}, idempotency_key=str(number)) for number in range(12)]
            assert {partition_of(run.id, 2) for run in runs} == {0, 1}
            await eventually(lambda: paying.begun["first"] == 12)
            async with Worker(log, [paying.agent()], home=tmp_path / "second") as second:
                taking = asyncio.create_task(second.wait())
                await eventually(lambda: any("under way" in line for line in said))
                paying.go.set()
                for run in runs:
                    assert await run.result(timeout=PATIENCE_S) == {
                        "first": "paid first",
                        "second": "paid second",
                    }
                    assert (await types_of(run))["effect.outcome.unknown"] == 0
                taking.cancel()
    assert paying.begun == {"first": 12, "second": 12}
    await log.close()


async def test_runs_that_only_wait_do_not_delay_the_end(log: EventLog, tmp_path: Path) -> None:
    async def ask(state: Any) -> Any:
        return {"answer": (await current_step().interrupt("go on?")).value}

    graph = StateGraph(dict)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    said: list[str] = []
    async with Client(log) as client:  # noqa: SIM117
        async with Worker(
            log, [agent_from_graph(graph)], home=tmp_path, progress=said.append, grace=LONG_S
        ) as worker:
            run = await client.start("sample", {})
            await eventually(run.approvals)
            async with asyncio.timeout(LONG_S / 4):
                await worker.close()
    assert said == []


async def test_a_sync_node_that_calls_an_effect_too_late_hears_that_the_run_is_not_carried_on_here(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_begin, held_back = Activity.may_begin, threading.Event()

    async def noting(activity: Activity) -> None:
        if late.is_set():
            held_back.set()
        await may_begin(activity)

    monkeypatch.setattr(Activity, "may_begin", noting)
    paying = Paying(sync=False)
    errors: list[BaseException] = []
    entered, late = threading.Event(), threading.Event()

    def node(state: Any) -> Any:
        step = current_step()
        entered.set()
        assert late.wait(LONG_S)
        try:
            return {"late": step.run_sync(step.effect("late", paying.pay, "late"))}
        except BaseException as error:
            errors.append(error)
            raise

    graph = StateGraph(Both)
    graph.add_node("pay", paying.node("first"))
    graph.add_node("late", node)
    graph.add_edge(START, "pay")
    graph.add_edge(START, "late")
    said: list[str] = []
    async with Client(log) as client:
        agents = [agent_from_graph(graph)]
        async with Worker(log, agents, home=tmp_path, progress=said.append, grace=LONG_S) as worker:
            run = await client.start("sample", {})
            await eventually(lambda: paying.begun["first"] and entered.is_set())
            closing = asyncio.create_task(worker.close())
            await eventually(lambda: said)
            late.set()
            await eventually(held_back.is_set)  # else its run may have been let go before it calls
            paying.go.set()
            await closing
        await eventually(lambda: errors)
        assert (await types_of(run))["effect.requested"] == 1
    assert paying.begun == {"first": 1}
    assert type(errors[0]).__name__ in ("LogClosedError", "CancelledError")
