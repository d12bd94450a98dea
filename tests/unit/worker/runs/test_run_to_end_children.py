"""No run ends before those that it has called are told to end: they are cancelled in its last commit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import (
    DeadlineExceededError,
    RecordTooLargeError,
    RunCancelledError,
    RunFailedError,
)
from noesium_stream.event.rules.agent_calls import CALLS
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker import Worker
from tests.support.hand_clock import HandClock
from tests.support.holding import HoldingLog
from tests.support.lives import Life
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.tree_agents import AGENTS, Leaf, Middle, Root, calling

_TURNS = 200
CANCEL = "run.cancel.requested"


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    async with asyncio.timeout(PATIENCE_S):
        yield log
    await log.close()


async def children(log: EventLog, run: Run) -> list[Run]:
    """The runs that it has called, in the order of the calls."""
    found = []
    async with Client(log) as client:
        for event in [event async for event in run.events(follow=False)]:
            if event.event_type in CALLS and event.payload["caller_run_id"] == run.id:
                found.append(client.run_handle(event.payload["target_agent_type"], event.payload["run_id"]))
    return found


async def at_work(log: EventLog, count: int, agent_type: str = "leaf") -> None:
    """Return when so many runs of this type have entered their node."""

    async def entered() -> bool:
        journal = await stored(log, log.topology.journal(agent_type), types=("kernel.node.entered",))
        return len({record.key for record in journal}) >= count

    await eventually(entered)


async def ends(run: Run) -> list[str]:
    return [event.event_type async for event in run.events(follow=False) if event.event_type in ENDINGS]


async def known(log: EventLog, home: Path, *agents: Any) -> None:
    """Let the registry know these agents, whose workers are gone then."""
    async with Worker(log, list(agents), home=home):
        pass


@pytest.mark.parametrize("undo", [False, True], ids=["at once", "compensating"])
async def test_a_run_that_fails_cancels_the_runs_that_it_waits_for(
    log: EventLog, tmp_path: Path, undo: bool
) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf", {}, {}, ending="fails", undo=undo))
        with pytest.raises(RunFailedError, match="it fails by itself"):
            await run.result()
        called = await children(log, run)
        assert len(called) == 2
        for child in called:
            with pytest.raises(RunCancelledError, match=f"its caller {run.id} failed"):
                await child.result()


async def test_a_run_that_completes_cancels_the_runs_whose_answers_it_did_not_wait_for(
    log: EventLog, tmp_path: Path
) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf", {}, {}, ending="first"))
        await at_work(log, 2)
        first, second = await children(log, run)
        await first.signal("go", "here")
        assert (await run.result())["answers"] == [{"answers": ["here"]}]
        with pytest.raises(RunCancelledError, match="has ended without its answer"):
            await second.result()
        assert await ends(first) == ["run.completed"]


async def test_a_deadline_cancels_a_child_that_no_worker_has_taken_up(log: EventLog, tmp_path: Path) -> None:
    clock = HandClock()
    await known(log, tmp_path, Leaf)
    async with Client(log, clock=clock) as client:
        async with Worker(log, [Root], home=tmp_path, clock=clock):
            run = await client.start("root", calling("leaf"), deadline=60)
            await eventually(lambda: _waits(run))
            clock.advance(61)
            with pytest.raises(DeadlineExceededError):
                await run.result()
        inbox = await stored(log, log.topology.inbox("leaf"))
        assert [record.event_type for record in inbox] == ["capability.invoked", CANCEL]


async def _waits(run: Run) -> bool:
    return (await run.info()).status == "waiting"


async def test_a_child_whose_command_is_still_in_the_inbox_starts_as_cancelled(
    log: EventLog, tmp_path: Path
) -> None:
    await known(log, tmp_path, Leaf)
    async with Client(log) as client:
        async with Worker(log, [Root], home=tmp_path):
            run = await client.start("root", calling("leaf"))
            await eventually(lambda: _waits(run))
            await run.cancel("enough")
            with pytest.raises(RunCancelledError, match="enough"):
                await run.result()
        [child] = await children(log, run)
        async with Worker(log, [Leaf], home=tmp_path):
            with pytest.raises(RunCancelledError, match="its caller"):
                await child.result()
        types = [event.event_type async for event in child.events(follow=False)]
    assert "kernel.node.entered" not in types
    assert types[-1] == "run.cancelled"


async def test_a_child_that_is_called_in_the_commit_under_way_when_the_cancel_comes_is_cancelled(
    log: EventLog, tmp_path: Path
) -> None:
    held = HoldingLog(log, None, "capability.invoked")
    async with Worker(cast(EventLog, held), list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf"))
        await held.held.wait()
        await run.cancel()
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        held.go.set()
        with pytest.raises(RunCancelledError):
            await run.result()
        [child] = await children(log, run)
        with pytest.raises(RunCancelledError):
            await child.result()


async def test_a_run_that_is_told_to_end_calls_nobody_any_more(log: EventLog, tmp_path: Path) -> None:
    await known(log, tmp_path, Leaf)
    async with Worker(log, [Root], home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf", ending="cleans up"))
        await eventually(lambda: _waits(run))
        await run.cancel()
        with pytest.raises(RunCancelledError):  # it would wait for a worker of `leaf` else
            await run.result()
        assert len(await children(log, run)) == 1


async def test_an_answer_that_comes_with_the_cancel_leaves_its_run_completed(
    log: EventLog, tmp_path: Path
) -> None:
    await known(log, tmp_path, Leaf)
    async with Client(log) as client:
        async with Worker(log, [Root], home=tmp_path):
            run = await client.start("root", calling("leaf", {}, {}))
            await eventually(lambda: _waits(run))
        first, second = await children(log, run)
        async with Worker(log, [Leaf], home=tmp_path):
            await first.signal("go", 1)
            await first.result()
        await run.cancel()  # behind the answer in the inbox of `root`, which nobody reads now
        async with Worker(log, list(AGENTS), home=tmp_path):
            with pytest.raises(RunCancelledError):
                await run.result()
            with pytest.raises(RunCancelledError):
                await second.result()
        inbox = await stored(log, log.topology.inbox("leaf"), types=(CANCEL,))
    assert [record.key for record in inbox] == [second.id]
    assert await ends(first) == ["run.completed"]


@pytest.mark.parametrize("undo", [False, True], ids=["at once", "compensating"])
@pytest.mark.parametrize("reaches_log", [False, True], ids=["before the commit", "after the commit"])
async def test_who_takes_a_run_over_in_the_middle_of_its_cancel_tells_each_child_once(
    tmp_path: Path, undo: bool, reaches_log: bool
) -> None:
    """Die at each commit from the one that accepts the cancel to the last one."""
    dies_at = 1
    while True:
        log = await open_log("memory://?partitions=1")
        async with asyncio.timeout(PATIENCE_S), Client(log) as client:
            await known(log, tmp_path / "known", Leaf)
            home = tmp_path / str(dies_at)
            run = await client.start("root", calling("leaf", {}, {}, undo=undo))
            async with Worker(log, [Root], home=home):
                await eventually(lambda run=run: _waits(run))
            await run.cancel()
            life = Life(log, Root, home, dies_at=dies_at, reaches_log=reaches_log)
            lived = await life.live(lambda run=run: _ended(run))
            async with Worker(log, [Root, Leaf], home=home):
                await _ended(run)
                for child in await children(log, run):
                    await _ended(child)
            for one in (run, *await children(log, run)):
                assert await ends(one) == ["run.cancelled"]
            told = Counter(
                record.key for record in await stored(log, log.topology.inbox("leaf"), types=(CANCEL,))
            )
            assert set(told.values()) == {1}
            assert len(told) == 2
        await log.close()
        if lived:
            assert dies_at > 2
            return
        dies_at += 1


async def _ended(run: Run) -> None:
    with pytest.raises(RunCancelledError):
        await run.result()


async def test_a_result_that_the_log_refuses_cancels_the_open_children_all_the_same(
    log: EventLog, tmp_path: Path
) -> None:
    held = HoldingLog(log, RecordTooLargeError("told to"), "run.completed")
    held.go.set()
    async with Worker(log, [Middle, Leaf], home=tmp_path / "leaf"), Client(log) as client:
        async with Worker(cast(EventLog, held), [Root], home=tmp_path):
            run = await client.start("root", calling("leaf", {}, {}, ending="first"))
            await at_work(log, 2)
            first, second = await children(log, run)
            await first.signal("go", 1)
            with pytest.raises(RunFailedError, match="told to"):
                await run.result()
        with pytest.raises(RunCancelledError, match=f"its caller {run.id} failed"):
            await second.result()


async def test_a_request_to_end_a_child_is_none_to_end_its_caller(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf", ending="fails"))
        with pytest.raises(RunFailedError):
            await run.result()
        assert CANCEL in [event.event_type async for event in run.events(follow=False)]
        assert await run.cancel_request() is None


async def test_a_child_that_waits_for_its_turn_starts_as_cancelled(log: EventLog, tmp_path: Path) -> None:
    """The call of the other one holds the only slot."""
    leaf = Worker(log, [Leaf], home=tmp_path / "leaf", concurrency=1)
    async with leaf, Worker(log, [Root], home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf", {"hangs": True}, {"hangs": True}))
        await at_work(log, 1)
        working, waiting = await children(log, run)
        if not [event async for event in working.events(follow=False)]:
            working, waiting = waiting, working
        await run.cancel()
        for one in (run, working, waiting):
            with pytest.raises(RunCancelledError):
                await one.result()
        types = [event.event_type async for event in waiting.events(follow=False)]
        assert "kernel.node.entered" not in types


async def test_a_run_that_waits_for_a_provider_is_cancelled(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, [Root], home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf"))
        await eventually(lambda: _waits(run))
        await run.cancel()
        with pytest.raises(RunCancelledError):
            await run.result()
        assert await children(log, run) == []
