"""Tasks are shared by all subscribers of a capability: each is taken once, whatever becomes of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import CommitUnknownError, FencedError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from tests.support.backends import PARTITIONS, Backend
from tests.support.delegating import State, caller, events_of, letters, provider, working
from tests.support.reading import eventually, stored

CAPABILITY = "sum.up"
TEN = list(range(10))


async def share(state: State) -> dict[str, Any]:
    """Ten tasks at once, whose results are in the order of their requests."""
    step = current_step()
    results = await asyncio.gather(*(step.request_task(CAPABILITY, {"n": n}) for n in TEN))
    return {"value": [result["value"] for result in results]}


Boss = caller(share, "boss")


def taker(agent_type: str, done: Counter[tuple[str, int]], **attributes: Any) -> Any:
    """An agent that does tasks, and counts what it has done."""

    async def work(state: State) -> dict[str, Any]:
        done[agent_type, state["n"]] += 1
        return {"value": 2 * state["n"]}

    return provider(agent_type, work, tasks=(CAPABILITY,), **attributes)


async def shared_by(log: EventLog, count: int) -> None:
    """Return when so many subscribers have the partitions of the task topic among them."""

    async def is_shared() -> bool:
        members = await log.members(log.topology.takers(CAPABILITY))
        held = [len(member.partitions) for member in members]
        return len(held) == count and min(held) > 0 and sum(held) == PARTITIONS

    await eventually(is_shared)


async def started(log: EventLog, *agent_types: str) -> Counter[str]:
    """How often each run of these agents was started, by its id."""
    found = Counter[str]()
    for agent_type in agent_types:
        journal = log.topology.journal(agent_type)
        found.update(record.key for record in await stored(log, journal, types=("run.started",)))
    return found


async def tasks_of(run: Run) -> list[str]:
    return [event.payload["task_id"] for event in await events_of(run, "task.requested")]


async def test_two_agent_types_share_the_tasks_and_each_is_done_once(
    backend: Backend, tmp_path: Path
) -> None:
    log, other, third = await backend.open(), await backend.open(), await backend.open()
    done: Counter[tuple[str, int]] = Counter()
    async with (
        working(log, tmp_path / "a", taker("alpha", done)),
        working(other, tmp_path / "b", taker("beta", done)),
        working(third, tmp_path / "c", Boss),
        Client(third) as client,
    ):
        await shared_by(third, 2)
        asked: list[str] = []
        while len({agent_type for agent_type, _ in done}) < 2:  # where a task goes is a matter of its id
            run = await client.start("boss", {"n": 0})
            assert await run.result() == {"value": [2 * n for n in TEN]}
            assert len(await events_of(run, "task.completed")) == len(TEN)
            asked += await tasks_of(run)
        assert await started(third, "alpha", "beta") == dict.fromkeys(asked, 1)
        assert set(done.values()) <= set(range(1, len(asked)))
        assert done.total() == len(asked)
        assert not await letters(third)


class Broken:
    """A log whose first commit with taken tasks fails, on the log or not; then its process is gone."""

    def __init__(self, inner: EventLog, error: Exception, *, reaches_log: bool) -> None:
        self.dead = asyncio.Event()
        self.log: Any = HookedLog(inner, self._commit)
        self._error = error
        self._reaches_log = reaches_log

    async def _commit(self, outgoing: Any, commit: Commit) -> list[Position]:
        if self.dead.is_set():
            raise FencedError("dead")
        if any(takes(record) for record in outgoing):
            if self._reaches_log:
                await commit(outgoing)
            self.dead.set()
            raise self._error
        return await commit(outgoing)


def takes(record: Outgoing) -> bool:
    return record.envelope.event_type == "task.taken" and bool(record.envelope.payload["tasks"])


@pytest.mark.parametrize("reaches_log", [False, True], ids=["lost", "unknown"])
async def test_what_a_dead_subscriber_has_taken_is_neither_lost_nor_taken_again_by_another_agent(
    backend: Backend, tmp_path: Path, reaches_log: bool
) -> None:
    log, third = await backend.open(), await backend.open()
    error = CommitUnknownError("no answer") if reaches_log else FencedError("cut off")
    broken, done = Broken(log, error, reaches_log=reaches_log), Counter[tuple[str, int]]()
    async with working(third, tmp_path / "c", Boss), Client(third) as client:
        run = await client.start("boss", {"n": 0})
        async with working(broken.log, tmp_path / "a", taker("alpha", done)):
            await broken.dead.wait()
        async with working(third, tmp_path / "b", taker("beta", done), taker("alpha", done)):
            assert await run.result() == {"value": [2 * n for n in TEN]}
            assert await started(third, "alpha", "beta") == dict.fromkeys(await tasks_of(run), 1)


async def test_a_member_of_the_group_that_was_cut_off_hands_nothing_on(
    backend: Backend, tmp_path: Path
) -> None:
    """The commit that fails was the first one's; it takes the partition again and goes on where it stood."""
    log = await backend.open()
    done, failed = Counter[tuple[str, int]](), list[EventEnvelope]()

    async def commit_unknown(outgoing: Any, commit: Commit) -> list[Position]:
        places = await commit(outgoing)
        taken = [record.envelope for record in outgoing if takes(record)]
        if taken and not failed:
            failed.extend(taken)
            raise CommitUnknownError("no answer")
        return places

    hooked: Any = HookedLog(log, commit_unknown)
    async with (
        working(hooked, tmp_path / "a", taker("alpha", done)),
        working(log, tmp_path / "c", Boss),
        Client(log) as client,
    ):
        run = await client.start("boss", {"n": 0})
        assert await run.result() == {"value": [2 * n for n in TEN]}
        assert failed
        assert await started(log, "alpha") == dict.fromkeys(await tasks_of(run), 1)


@pytest.mark.parametrize("reaches_log", [False, True], ids=["lost", "unknown"])
async def test_a_requester_that_dies_with_its_request_meets_its_own_tasks(
    tmp_path: Path, reaches_log: bool
) -> None:
    log = await open_log("memory://")
    done, failed = Counter[tuple[str, int]](), list[EventEnvelope]()

    async def die_once(outgoing: Any, commit: Commit) -> list[Position]:
        asked = [one.envelope for one in outgoing if one.topic == log.topology.task(CAPABILITY)]
        if not asked or failed:
            return await commit(outgoing)
        if reaches_log:
            await commit(outgoing)
        failed.extend(asked)
        raise CommitUnknownError("no answer")

    hooked: Any = HookedLog(log, die_once)
    async with (
        working(log, tmp_path / "a", taker("alpha", done)),
        working(log, tmp_path / "b", taker("beta", done)),
        working(hooked, tmp_path / "c", Boss),
        Client(log) as client,
    ):
        run = await client.start("boss", {"n": 0})
        assert await run.result() == {"value": [2 * n for n in TEN]}
        assert failed
        assert {event.payload["task_id"] for event in failed} <= set(await tasks_of(run))
        assert await started(log, "alpha", "beta") == dict.fromkeys(await tasks_of(run), 1)
    await log.close()
