"""The records of a tree, by one reader for each journal: all, each once, in order, and nothing left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.client.views.tree_reader import TreeMember, TreeReader
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually
from tests.support.tree_agents import AGENTS, Leaf, Middle, Root, calling
from tests.support.trees import at_work, children, nothing_left, thirty

URLS = {"memory": "memory://?partitions=3", "sqlite": "sqlite:///{}/log.db?partitions=3"}


@pytest.fixture(params=list(URLS))
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(URLS[request.param].format(tmp_path))
    async with asyncio.timeout(PATIENCE_S):
        yield log
    await log.close()


async def read(reader: TreeReader, *, follow: bool) -> dict[str, list[str]]:
    """The ids of the events of each run, in the order of reading."""
    found: dict[str, list[str]] = {}
    async for member, _, event in reader.read(follow=follow):
        assert member.caller is None or member.caller.run_id in found, "a run comes after its call"
        found.setdefault(member.run_id, []).append(event.event_id)
    return found


async def of_runs(log: EventLog, *runs: Run) -> dict[str, list[str]]:
    """The same, read run by run."""
    found: dict[str, list[str]] = {}
    for run in runs:
        found[run.id] = [event.event_id async for event in run.events(follow=False)]
        found |= await of_runs(log, *await children(log, run))
    return found


async def signal_all(log: EventLog, run: Run) -> None:
    for child in await children(log, run):
        await signal_all(log, child)
        await child.signal("go")


async def test_who_comes_before_in_the_middle_or_after_reads_all_of_a_tree_once_and_in_order(
    log: EventLog, tmp_path: Path
) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        other = await client.start("root", calling("leaf"))
        run = await client.start("root", thirty(2, 3))
        early = asyncio.create_task(read(TreeReader(log, "root", run.id), follow=True))
        await at_work(log, 7)
        middle = asyncio.create_task(read(TreeReader(log, "root", run.id), follow=True))
        now = await read(TreeReader(log, "root", run.id), follow=False)
        await signal_all(log, run)
        await run.result()
        whole = await of_runs(log, run)
        assert len(whole) == 9
        assert await early == await middle == whole
        assert await read(TreeReader(log, "root", run.id), follow=True) == whole
        assert await read(TreeReader(log, "root", run.id), follow=False) == whole
        assert now.keys() == whole.keys()
        assert all(whole[one][: len(events)] == events for one, events in now.items())
        await other.cancel()


async def test_a_reader_that_is_closed_leaves_no_task_behind(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf"))
        await at_work(log, 1)
        before = asyncio.all_tasks()
        async with aclosing(TreeReader(log, "root", run.id).read()) as records:
            async for member, _, _ in records:
                if member.depth == 1:
                    break
        await nothing_left(before)
        reading = asyncio.create_task(read(TreeReader(log, "root", run.id), follow=True))
        await eventually(lambda: len(asyncio.all_tasks() - before) > 1)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await nothing_left(before)


async def test_a_child_that_was_handed_on_to_more_partitions_is_followed(
    log: EventLog, tmp_path: Path
) -> None:
    async with Worker(log, [Middle, Leaf], home=tmp_path / "1"), Client(log) as client:
        held = await client.start("leaf", {})  # the first generation has one run at work
        await at_work(log, 1)
        run = await client.start("root", calling("middle", calling("leaf"), calling("leaf")))
        reader = TreeReader(log, "root", run.id)
        following = asyncio.create_task(read(reader, follow=True))
        async with Worker(log, [Root], home=tmp_path / "2"):
            await eventually(lambda: len(reader.members) == 5)
            await client.grow("leaf", 5)
            later = await client.start("root", calling("leaf"))
            late_reader = TreeReader(log, "root", later.id)
            late = asyncio.create_task(read(late_reader, follow=True))
            await eventually(lambda: len(late_reader.members) == 2)
            for one in (run, later):
                await signal_all(log, one)
                await one.result()
            assert await following == await of_runs(log, run)
            assert await late == await of_runs(log, later)
            await held.signal("go")
            await held.result()


async def test_a_reader_that_stood_before_the_growth_follows_a_child_behind_it(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client, Worker(log, [Leaf], home=tmp_path / "1"):
        run = await client.start("root", calling("leaf"))
        waiting = await client.start("leaf", {})
        await at_work(log, 1)
        reader = TreeReader(log, "root", run.id)
        following = asyncio.create_task(read(reader, follow=True))
        lanes: Any = reader._lanes
        await eventually(lambda: "root" in lanes)
        await reader._lanes_of("leaf")  # as if another run of the type had been met
        await client.grow("leaf", 5)
        async with Worker(log, [Root], home=tmp_path / "2"):
            await eventually(lambda: len(reader.members) == 2)
            [child] = await children(log, run)
            await child.signal("go")
            await run.result()
            assert await following == await of_runs(log, run)
            assert len(lanes["leaf"]) == 2
        await waiting.cancel()


async def test_a_run_that_is_called_later_is_looked_for_only_behind_where_the_reading_began(
    log: EventLog, tmp_path: Path
) -> None:
    asked: list[tuple[str, dict[int, int]]] = []

    class Counting:
        """A log that notes where bounded readers begin."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log, name)

        def read(self, topic: str, cursor: dict[int, int], **options: Any) -> Any:
            if options.get("until") is not None:
                asked.append((topic, dict(cursor)))
            return log.read(topic, cursor, **options)

    async with Worker(log, [Middle, Leaf], home=tmp_path / "1"), Client(log) as client:
        async with Worker(log, [Root], home=tmp_path / "2"):
            earlier = await client.start("root", calling("middle", calling("leaf", {}, {})))
            await at_work(log, 2)
            await signal_all(log, earlier)
            await earlier.result()
        run = await client.start("root", calling("middle", calling("leaf", {}, {})))
        reader = TreeReader(cast(EventLog, Counting()), "root", run.id)
        following = asyncio.create_task(read(reader, follow=True))
        await eventually(lambda: "root" in reader._lanes)
        for agent_type in ("middle", "leaf"):
            await reader._lanes_of(agent_type)  # as if other runs of these types had been met
        opened = {lane.generation.journal: lane.opened for lanes in reader._lanes.values() for lane in lanes}
        async with Worker(log, [Root], home=tmp_path / "2"):
            await at_work(log, 4)
            await signal_all(log, run)
            await run.result()
        assert await following == await of_runs(log, run)
        for topic, cursor in asked:
            if topic != log.topology.journal("root"):
                assert all(offset >= opened[topic][partition] for partition, offset in cursor.items())


def test_a_run_knows_the_runs_above_it() -> None:
    root = TreeMember("a", "root")
    child = TreeMember("b", "leaf", root, "leaf.work", 1)
    assert [one.run_id for one in child.path] == ["a", "b"]
