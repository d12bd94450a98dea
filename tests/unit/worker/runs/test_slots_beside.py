"""Where the runs of one tenant have all slots, another one does not wait for them to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.slots import BESIDE, Slots
from noesium_stream.worker.runs.start_queue import AHEAD, AT_ONCE, FEWEST, StartQueue
from tests.support.reading import PATIENCE_S, eventually

SLOTS = 2 * BESIDE
"""With two more for keys that have no run at work."""


class State(TypedDict, total=False):
    value: Any


async def turns_of_the_loop() -> None:
    for _ in range(2_000):
        await asyncio.sleep(0)


class Office:
    """A worker of runs that are told when they may end: the large tenant has all slots."""

    def __init__(self) -> None:
        self.at_work: list[str] = []
        self.may_end: dict[str, asyncio.Event] = {}

    async def node(self, state: dict[str, Any]) -> dict[str, Any]:
        name = state["value"]
        self.at_work.append(name)
        await self.may_end.setdefault(name, asyncio.Event()).wait()
        return {"value": name}

    async def asks(self, tenant: str, *names: str) -> list[Any]:
        return [await self.client.start("sample", {"value": n}, fairness_key=tenant) for n in names]

    @asynccontextmanager
    async def open(self, home: Path) -> AsyncIterator[list[Any]]:
        graph = StateGraph(State).add_node("node", self.node).add_edge(START, "node").add_edge("node", END)
        log = await open_log("memory://?partitions=1")
        async with (
            Client(log) as self.client,
            Worker(log, [agent_from_graph(graph)], home=home, concurrency=SLOTS),
        ):
            large = await self.asks("large", *(f"large-{number}" for number in range(2 * SLOTS)))
            await eventually(lambda: len(self.at_work) == SLOTS)
            yield large
        await log.close()


async def test_tenants_begin_beside_one_that_has_all_slots_with_one_run_each(tmp_path: Path) -> None:
    office = Office()
    at_work, asks = office.at_work, office.asks
    async with office.open(tmp_path) as large:
        small = await asks("small", "small-1", "small-2")
        await eventually(lambda: "small-1" in at_work)
        await asks("other", "other-1")
        await eventually(lambda: "other-1" in at_work)
        await asks("fourth", "fourth-1")
        await turns_of_the_loop()
        assert at_work[SLOTS:] == ["small-1", "other-1"]  # one of each key, and no more than are to be spared
        office.may_end["small-1"].set()
        assert (await small[0].result(timeout=PATIENCE_S))["value"] == "small-1"
        await eventually(lambda: len(at_work) == SLOTS + 3)
        assert set(at_work[SLOTS + 2 :]) <= {"small-2", "fourth-1"}
        assert len([name for name in at_work if name.startswith("large")]) == SLOTS
        for name in at_work[:SLOTS]:
            office.may_end[name].set()
        for run in large[:SLOTS]:
            await run.result(timeout=PATIENCE_S)
        await eventually(lambda: {"small-2", "fourth-1"} <= set(at_work))


async def test_a_tenants_next_run_begins_beside_when_its_last_one_has_ended(tmp_path: Path) -> None:
    office = Office()
    async with office.open(tmp_path):
        [first, _] = await office.asks("small", "small-1", "small-2")
        await eventually(lambda: "small-1" in office.at_work)
        await turns_of_the_loop()
        assert office.at_work[SLOTS:] == ["small-1"], "there is room beside for one more, of another tenant"
        office.may_end["small-1"].set()
        await first.result(timeout=PATIENCE_S)
        await eventually(lambda: office.at_work[SLOTS:] == ["small-1", "small-2"])


async def test_tenants_that_begin_beside_have_turns_too(tmp_path: Path) -> None:
    office = Office()
    async with office.open(tmp_path):
        await office.asks("a", "a-1", "a-2", "a-3")
        await office.asks("b", "b-1")
        await eventually(lambda: len(office.at_work) == SLOTS + 2)
        await office.asks("c", "c-1")
        await turns_of_the_loop()
        assert office.at_work[SLOTS:] == ["a-1", "b-1"]
        for ends, begins in (("a-1", "c-1"), ("c-1", "a-2"), ("b-1", None), ("a-2", "a-3")):
            office.may_end.setdefault(ends, asyncio.Event()).set()
            if begins is not None:
                await eventually(lambda begins=begins: office.at_work[-1] == begins)


def test_few_slots_are_not_exceeded_and_more_are_by_an_eighth() -> None:
    assert Slots(BESIDE - 1).beside() == BESIDE - 1
    slots = Slots(SLOTS)
    one, other = slots.join(), slots.join()
    one.working.update(str(number) for number in range(SLOTS - 1))
    other.working.add("other")
    assert (slots.room(one), slots.beside()) == (0, 2)
    other.working.update(("second", "third", "fourth"))
    assert slots.beside() == 0


def test_partitions_at_work_share_what_all_of_them_may_have() -> None:
    slots = Slots(SLOTS)
    one, other, _ = slots.join(), slots.join(), slots.join()
    assert one.part_of(24) == 24
    one.hungry = True
    other.working.add("run")
    assert (one.part_of(24), other.part_of(24)) == (12, 12)


def session(run_id: str) -> Any:
    """A run that waits for its first commit, once it has begun."""
    return SimpleNamespace(
        run_id=run_id,
        task=None,
        committing=True,
        history=SimpleNamespace(terminal=None),
        activity=SimpleNamespace(changes=1),
    )


@pytest.mark.parametrize(("part", "at_once"), [(lambda n: n, AT_ONCE), (lambda n: n // 100, FEWEST)])
async def test_what_goes_ahead_waits_for_nobody_and_holds_nobody_up(part: Any, at_once: int) -> None:
    begun: list[str] = []

    def begin(run: Any) -> None:
        run.task = asyncio.get_running_loop().create_future()
        begun.append(run.run_id)

    runs = {name: session(name) for name in (f"{number}" for number in range(2 * AT_ONCE))}
    firsts = {name: session(name) for name in (f"first-{number}" for number in range(AHEAD + 1))}
    starting = StartQueue({**runs, **firsts}, begin, part)
    for run in runs.values():
        starting.start(run)
    assert begun == list(runs)[:at_once]
    for run in firsts.values():
        starting.start(run, ahead=True)
    assert begun[at_once:] == list(firsts)[:AHEAD]  # the one that is too many waits with the others
    runs["0"].task.set_result(None)
    await eventually(lambda: len(begun) > at_once + AHEAD)
    assert begun[at_once + AHEAD :] == [list(runs)[at_once]]
    await starting.close()
