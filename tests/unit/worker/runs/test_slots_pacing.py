"""Runs go on a few at a time where there are several tenants, and as they may where there is one."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from noesium_stream.worker.runs.slots import PACED_RUNS, PACED_TURNS, REMEMBERED, Pace
from tests.support.holding import HoldingLog
from tests.support.reading import PATIENCE_S, eventually

RUNS = 3 * PACED_RUNS


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def pace_of(*begun: str) -> Pace:
    """One at which a run of each of these keys has begun."""
    pace = Pace()
    for key in begun:
        pace.begins(key)
    return pace


def runs_of(pace: Pace, gone_on: list[int], key: str = "one", first: int = 0) -> list[asyncio.Task[None]]:
    async def run(number: int) -> None:
        await pace.step(key)
        gone_on.append(number)

    return [asyncio.create_task(run(number)) for number in range(first, first + RUNS)]


async def test_runs_of_one_key_go_on_as_they_may() -> None:
    pace, gone_on = pace_of("one", "one"), list[int]()
    tasks = runs_of(pace, gone_on)
    await turns(1)
    assert gone_on == list(range(RUNS))
    await asyncio.gather(*tasks)


async def test_runs_of_several_keys_go_on_a_few_at_a_time_in_their_order() -> None:
    pace, gone_on = pace_of("one", "two"), list[int]()
    tasks = runs_of(pace, gone_on)
    await turns(1)
    assert gone_on == list(range(PACED_RUNS))
    tasks[PACED_RUNS].cancel()
    await turns(PACED_TURNS + 1)
    assert gone_on == [*range(PACED_RUNS), *range(PACED_RUNS + 1, 2 * PACED_RUNS + 1)], (
        "one that is cancelled has no turn"
    )
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(gone_on) == RUNS - 1
    await turns(PACED_TURNS)
    later = list[int]()
    tasks = runs_of(pace, later)
    await turns(1)
    assert later == list(range(PACED_RUNS)), "and so do those that come when nobody waited"
    await asyncio.gather(*tasks)


async def test_a_lone_run_of_a_key_is_not_behind_all_those_of_another() -> None:
    pace, gone_on = pace_of("one", "two"), list[int]()
    tasks = [*runs_of(pace, gone_on), *runs_of(pace, gone_on, "two", 100)]
    await asyncio.gather(*tasks)
    waited = gone_on[PACED_RUNS:]
    assert waited[:6] == [PACED_RUNS, 100, PACED_RUNS + 1, 101, PACED_RUNS + 2, 102]
    assert waited[-RUNS // 3 :] == sorted(waited[-RUNS // 3 :]), "the rest of one follows"


async def test_others_are_forgotten_after_many_runs_of_one_key() -> None:
    pace, gone_on = pace_of("one", "two", *["two"] * REMEMBERED), list[int]()
    tasks = runs_of(pace, gone_on)
    await turns(1)
    assert len(gone_on) == RUNS
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("tenants", ["a", "ab"])
async def test_after_a_commit_runs_go_on_a_few_in_a_turn_where_there_are_several_tenants(
    tmp_path: Path, tenants: str
) -> None:
    turn, at_work, begun = 0, Counter[int](), 0

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def first(state: dict[str, Any]) -> dict[str, Any]:
        nonlocal begun
        begun += 1
        return {"first": True}

    async def second(state: dict[str, Any]) -> dict[str, Any]:
        at_work[turn] += 1
        return {"second": True}

    graph = StateGraph(dict).add_sequence([("first", first), ("second", second)]).add_edge(START, "first")
    log = await open_log("memory://?partitions=1")
    holding = HoldingLog(log, None, "kernel.node.completed")
    async with Client(log) as client:
        runs = [await client.start("sample", {}, fairness_key=tenants[n % len(tenants)]) for n in range(24)]
        counting = asyncio.create_task(count())
        async with Worker(cast(EventLog, holding), [agent_from_graph(graph)], home=tmp_path):
            await eventually(lambda: begun == len(runs))
            await turns(PACED_TURNS)  # the first one is on its way to the log, and the others wait for that
            holding.go.set()
            for run in runs:
                await run.result(timeout=PATIENCE_S)
        counting.cancel()
    assert at_work.total() == len(runs)
    assert (max(at_work.values()) <= PACED_RUNS) is (len(tenants) > 1), at_work
    await log.close()
