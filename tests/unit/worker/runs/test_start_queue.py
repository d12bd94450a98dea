"""Runs begin a few at a time and in their order; none that works outside holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import RunCancelledError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.runs import start_queue as starting
from noesium_stream.worker.runs.start_queue import AT_ONCE
from noesium_stream.worker.tenure import RunTenure
from tests.support.effects import reached
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S, eventually

MANY = 5 * AT_ONCE


class State(TypedDict, total=False):
    value: Any


class Host:
    """One partition, whose commits wait while its gate is closed."""

    def __init__(self, log: FailingLog, home: Path) -> None:
        self.log = log
        self.home = home

    def worker(self, node: Any, **settings: Any) -> Worker:
        graph = StateGraph(State)
        graph.add_node("node", node, **settings)
        graph.add_edge(START, "node")
        graph.add_edge("node", END)
        self.current = Worker(self.log, [agent_from_graph(graph)], home=self.home)  # type: ignore[arg-type]
        return self.current

    @property
    def owner(self) -> RunTenure:
        [owner] = self.current.tenures()
        return owner

    @property
    def begun(self) -> int:
        return sum(session.begun for session in self.owner.runs.loaded.values())


@pytest.fixture
async def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Host]:
    monkeypatch.setattr(starting, "ROUND_S", 0.0)
    inner = await open_log("memory://?partitions=1")
    yield Host(FailingLog(inner, lambda *_: False, RuntimeError("never"), reaches_log=False), tmp_path)
    await inner.close()


async def several_rounds() -> None:
    """Many more turns of the event loop than a few rounds have."""
    for _ in range(2_000):
        await asyncio.sleep(0)


async def test_runs_that_are_on_their_way_to_the_log_hold_the_next_ones_up(host: Host) -> None:
    order: list[int] = []

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        order.append(state["value"])
        if len(order) == AT_ONCE:
            host.log.gate.clear()
        return {"value": (await current_step().interrupt("Go on?")).answered_by}

    async with Client(host.log.inner) as client:
        runs = [await client.start("sample", {"value": number}) for number in range(MANY)]
        async with host.worker(node):
            await eventually(lambda: len(order) == AT_ONCE)
            await several_rounds()
            assert host.begun == len(order) == AT_ONCE
            host.log.gate.set()
            await eventually(lambda: len(order) == MANY)
            assert order == list(range(MANY))
            for run in runs:
                await run.approve(by="ann")
            for run in runs:
                assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"


async def test_runs_whose_end_is_on_its_way_to_the_log_hold_nobody_up(host: Host) -> None:
    order: list[int] = []

    @kernel_node(deterministic=True)
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        order.append(state["value"])
        if len(order) == AT_ONCE:
            host.log.gate.clear()
        return {"value": state["value"]}

    async with Client(host.log.inner) as client:
        runs = [await client.start("sample", {"value": number}) for number in range(MANY)]
        async with host.worker(node):
            try:
                await eventually(lambda: len(order) == MANY)
                assert not host.log.gate.is_set()
            finally:
                host.log.gate.set()
            assert order == list(range(MANY))
            for number, run in enumerate(runs):
                assert (await run.result(timeout=PATIENCE_S))["value"] == number


@pytest.mark.parametrize("journaled", [True, False])
async def test_runs_that_work_outside_do_so_side_by_side(host: Host, journaled: bool) -> None:
    together, gate = 0, asyncio.Event()

    async def outside() -> str:
        nonlocal together
        together += 1
        await gate.wait()
        return "done"

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        if not journaled:
            return {"value": await outside()}
        step = current_step()
        return {"value": await step.effect("outside", outside, effect_class=SideEffectClass.EXTERNAL)}

    async with Client(host.log.inner) as client:
        runs = [await client.start("sample", {}) for _ in range(MANY)]
        async with host.worker(node):
            await eventually(lambda: together == MANY)
            gate.set()
            for run in runs:
                assert (await run.result(timeout=PATIENCE_S))["value"] == "done"


async def test_a_run_that_is_cancelled_before_its_turn_ends_and_never_begins(host: Host) -> None:
    begun: list[int] = []

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        begun.append(state["value"])
        if len(begun) == AT_ONCE:
            host.log.gate.clear()
        return {"value": (await current_step().interrupt("Go on?")).answered_by}

    async with Client(host.log.inner) as client:
        runs = [await client.start("sample", {"value": number}) for number in range(MANY)]
        async with host.worker(node):
            await eventually(lambda: len(begun) == AT_ONCE)
            await runs[-1].cancel("not needed")
            await eventually(lambda: host.owner.runs.loaded[runs[-1].id].held)
            host.log.gate.set()
            with pytest.raises(RunCancelledError, match="not needed"):
                await runs[-1].result(timeout=PATIENCE_S)
            await eventually(lambda: len(begun) == MANY - 1)
            assert MANY - 1 not in begun


async def test_what_has_not_begun_when_the_worker_leaves_begins_with_the_next_one(host: Host) -> None:
    begun: set[int] = set()

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        begun.add(state["value"])
        if len(begun) == AT_ONCE and not host.log.failed:
            host.log.gate.clear()
            asyncio.get_running_loop().call_later(0.05, host.log.gate.set)
            host.log.failed = True
            leave.set()
        return {"value": (await current_step().interrupt("Go on?")).answered_by}

    leave = asyncio.Event()
    async with Client(host.log.inner) as client:
        runs = [await client.start("sample", {"value": number}) for number in range(MANY)]
        async with host.worker(node):
            await leave.wait()
        assert len(begun) == AT_ONCE
        async with host.worker(node):
            await eventually(lambda: len(begun) == MANY)
            for run in runs:
                await run.approve(by="ann")
                assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"


async def test_runs_that_pause_before_another_attempt_hold_nobody_up(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        if state["value"] == "fails":
            raise ConnectionError("told to fail")
        return {"value": "done"}

    retry = RetryPolicy(initial_interval=3_600.0, jitter=False)
    async with Client(host.log.inner) as client:
        async with host.worker(node, retry_policy=retry):
            for _ in range(AT_ONCE):
                await reached(await client.start("sample", {"value": "fails"}), "kernel.node.failed")
        async with host.worker(node, retry_policy=retry):
            other = await client.start("sample", {"value": "other"})
            assert (await other.result(timeout=PATIENCE_S))["value"] == "done"


async def booked() -> int:
    return 7


@kernel_compensation()
async def undo_for_ever(result: int) -> None:
    await asyncio.Event().wait()


async def test_runs_that_are_being_undone_hold_nobody_up(host: Host) -> None:
    async def node(state: dict[str, Any]) -> dict[str, Any]:
        if state["value"] == "fails":
            kind = SideEffectClass.IDEMPOTENT
            await current_step().effect("book", booked, compensate=undo_for_ever, effect_class=kind)
            raise ConnectionError("told to fail")
        return {"value": "done"}

    async with Client(host.log.inner) as client:
        async with host.worker(node):
            for _ in range(AT_ONCE):
                await reached(await client.start("sample", {"value": "fails"}), "effect.requested", 2)
        async with host.worker(node):
            other = await client.start("sample", {"value": "other"})
            assert (await other.result(timeout=PATIENCE_S))["value"] == "done"
