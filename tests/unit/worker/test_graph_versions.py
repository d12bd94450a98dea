"""Workers that carry several versions of a graph: new runs begin with one, open runs go on with their own."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import ConfigError
from noesium_stream.kernel import Migration, current_step
from noesium_stream.log import EventLog, open_log
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually


class State(TypedDict, total=False):
    items: Annotated[list[str], operator.add]


async def ask(state: State) -> dict[str, Any]:
    return {"items": [await current_step().signal("go")]}


async def pay(state: State) -> dict[str, Any]:
    return {"items": ["paid"]}


async def settle(state: State) -> dict[str, Any]:
    return {"items": ["settled"]}


ONE = StateGraph(State).add_sequence([ask, pay]).add_edge(START, "ask")
TWO = StateGraph(State).add_sequence([ask, settle]).add_edge(START, "ask")
V1 = agent_from_graph(ONE)
V2 = agent_from_graph(TWO, version="2.0.0")
MOVING = agent_from_graph(TWO, version="2.0.0", migrations=[Migration(ONE, nodes={"pay": "settle"})])


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


def worker(log: EventLog, home: Path, new: Any, *also: Any) -> Worker:
    return Worker(log, [new], home=home, other_versions=also)


async def waits(client: Client, run: Any, event_type: str) -> None:
    """Return when the run's journal has an event of this type."""
    async for event in (await client.get_run(run.id)).events():
        if event.event_type == event_type:
            return


async def begun(log: EventLog, client: Client, home: Path, new: Any) -> Any:
    """A run that has begun with a worker which has ended."""
    async with worker(log, home, new):
        run = await client.start("sample", {"items": []})
        await waits(client, run, "kernel.node.entered")
    return run


async def status(client: Client, run: Any) -> Any:
    return next(info for info in await client.list_runs() if info.run_id == run.id)


async def test_an_open_run_ends_with_the_graph_it_began_with_and_a_new_one_begins_with_the_newest(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        old = await begun(log, client, tmp_path, V1)
        async with worker(log, tmp_path, V2, V1):
            new = await client.start("sample", {"items": []})
            for run in (old, new):
                await run.signal("go", "on")
            assert await old.result(timeout=PATIENCE_S) == {"items": ["on", "paid"]}
            assert await new.result(timeout=PATIENCE_S) == {"items": ["on", "settled"]}
        assert (await status(client, old)).agent_version == "1.0.0"
        assert (await status(client, new)).agent_version == "2.0.0"
        assert not [
            e async for e in old.events(follow=False) if e.event_type in ("run.parked", "run.migrated")
        ]


async def test_a_worker_that_has_an_older_graph_beside_a_migration_moves_no_run_of_it(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        old = await begun(log, client, tmp_path, V1)
        async with worker(log, tmp_path, MOVING, V1):
            await old.signal("go", "on")
            assert await old.result(timeout=PATIENCE_S) == {"items": ["on", "paid"]}


async def test_a_run_is_moved_by_the_version_that_has_a_migration_from_its_own(
    log: EventLog, tmp_path: Path
) -> None:
    third = agent_from_graph(StateGraph(State).add_sequence([ask]).add_edge(START, "ask"), version="3.0.0")
    async with Client(log) as client:
        old = await begun(log, client, tmp_path, V1)
        async with worker(log, tmp_path, third, MOVING):
            await old.signal("go", "on")
            assert await old.result(timeout=PATIENCE_S) == {"items": ["on", "settled"]}
        assert (await status(client, old)).agent_version == "2.0.0"


async def test_a_newer_version_may_be_carried_beside_the_one_that_new_runs_begin_with(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        newer = await begun(log, client, tmp_path, V2)
        async with worker(log, tmp_path, V1, V2):
            older = await client.start("sample", {"items": []})
            for run in (newer, older):
                await run.signal("go", "on")
            assert (await newer.result(timeout=PATIENCE_S))["items"][-1] == "settled"
            assert (await older.result(timeout=PATIENCE_S))["items"][-1] == "paid"


async def test_a_run_that_no_worker_carries_is_stranded_says_what_it_waits_for_and_goes_on_when_one_does(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        run = await begun(log, client, tmp_path, V2)
        async with worker(log, tmp_path, V1):
            await waits(client, run, "run.parked")
            info = await status(client, run)
            assert info.status == "stranded"
            assert info.reason.startswith("it waits for sample 2.0.0 (")
            assert "the worker has sample 1.0.0 (" in info.reason
            await run.signal("go", "on")  # is kept for it
        async with worker(log, tmp_path, V1, V2):
            assert await run.result(timeout=PATIENCE_S) == {"items": ["on", "settled"]}
        types = [event.event_type async for event in run.events(follow=False)]
        assert types.count("run.parked") == types.count("run.resumed") == 1
        assert types.count("run.started") == types.count("run.signalled") == 1


async def test_what_a_stranded_run_says_names_all_that_the_worker_carries(
    log: EventLog, tmp_path: Path
) -> None:
    third = agent_from_graph(StateGraph(State).add_sequence([ask]).add_edge(START, "ask"), version="3.0.0")
    async with Client(log) as client:
        run = await begun(log, client, tmp_path, third)
        async with worker(log, tmp_path, V2, V1):
            await eventually(lambda: _stranded(client, run))
            info = await status(client, run)
        assert "sample 2.0.0" in info.reason
        assert "sample 1.0.0" in info.reason


async def _stranded(client: Client, run: Any) -> bool:
    return bool((await status(client, run)).status == "stranded")


async def test_a_version_that_is_given_twice_or_of_no_agent_is_refused(log: EventLog, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"sample 1\.0\.0 .* twice"):
        await worker(log, tmp_path, V1, agent_from_graph(ONE)).__aenter__()
    with pytest.raises(ConfigError, match="Another version of other is of no use"):
        worker(log, tmp_path, V1, agent_from_graph(TWO, "other"))
