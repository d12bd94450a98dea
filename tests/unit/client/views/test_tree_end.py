"""A tree that is cancelled: the wait ends when each run has ended, and what was not stopped is named."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.client.views import tree_end as views
from noesium_stream.client.views.tree_end import DEAD_LETTER
from noesium_stream.errors import PermissionDeniedError, RunFailedError, RunNotFoundError
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log import open_log
from noesium_stream.log.headers import ORIGIN
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from noesium_stream.worker.runs import run_to_end
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.tree_agents import AGENTS, Leaf, Middle, Root, calling
from tests.support.trees import at_work, children, counts, endings, nothing_left, thirty

CANCEL = ("run.cancel.requested",)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2")
    async with asyncio.timeout(PATIENCE_S):
        yield log
    await log.close()


async def test_a_tree_of_thirty_one_runs_at_work_is_cancelled_each_run_once(
    log: EventLog, tmp_path: Path
) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", thirty())
        await at_work(log, 25)
        before = asyncio.all_tasks()
        tree = await run.cancel_tree("enough")
        await nothing_left(before)
        assert (tree.ended, tree.asked, tree.unstopped) == (True, True, ())
        assert Counter((one.agent_type, one.depth, one.status) for one in tree.runs) == {
            ("root", 0, "cancelled"): 1,
            ("middle", 1, "cancelled"): 5,
            ("leaf", 2, "cancelled"): 25,
        }
        assert tree.runs[0].reason == "enough"
        assert tree.runs[1].reason == f"its caller {run.id} was cancelled"
        assert [one.parent_run_id for one in tree.runs[2:7]] == [tree.runs[1].run_id] * 5
        assert await run.cancel_tree() == tree  # a second call is the same cancellation
        assert await run.tree_end() == tree
    assert counts(await endings(log)) == {("run.cancelled",): 31}


async def test_a_run_that_no_worker_carries_is_named_and_ends_when_one_comes(
    log: EventLog, tmp_path: Path
) -> None:
    async with Worker(log, [Leaf], home=tmp_path):
        pass
    async with Worker(log, [Root, Middle], home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("middle", calling("leaf")))
        await eventually(lambda: _waits(log, "middle"))
        tree = await run.cancel_tree(timeout=0.2)
        [left] = tree.unstopped
        assert (tree.ended, left.kind, left.agent_type) == (False, "open", "leaf")
        assert left.what.startswith("waits for a worker of leaf: nobody has partition")
        assert [one.status for one in tree.runs] == ["cancelled", "cancelled", "waiting"]
        waiting = asyncio.create_task(run.cancel_tree())
        async with Worker(log, [Leaf], home=tmp_path):
            assert (await waiting).ended
    assert counts(await endings(log)) == {("run.cancelled",): 3}


async def _waits(log: EventLog, agent_type: str) -> bool:
    async with Client(log) as client:
        return [info.status for info in await client.list_runs(agent_type=agent_type)] == ["waiting"]


async def test_an_effect_in_flight_is_named(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf", {"hangs": True}))
        await at_work(log, 1)
        [child] = await children(log, run)
        requested = await reached(child, "effect.requested")
        tree = await run.cancel_tree()
        [left] = tree.unstopped
        assert tree.ended
        assert (left.kind, left.run_id, left.effect_id) == (
            "effect",
            child.id,
            requested.payload["effect_id"],
        )
        assert left.what == "the outcome of pay is unknown: the run ended while it was under way"


async def test_a_child_that_had_its_result_before_it_was_told_is_named(log: EventLog, tmp_path: Path) -> None:
    """Its answer lies in the inbox of its caller, behind the request to cancel that one."""
    async with Worker(log, [Leaf], home=tmp_path / "leaf"), Client(log) as client:
        async with Worker(log, [Root], home=tmp_path):
            run = await client.start("root", calling("leaf", {}, {}))
            await at_work(log, 2)
            first, second = await children(log, run)
            await eventually(lambda: _waits(log, "root"))
        await run.cancel()
        await first.signal("go", 1)
        await first.result()
        async with Worker(log, [Root], home=tmp_path):
            tree = await run.cancel_tree()
        assert {one.run_id: one.status for one in tree.runs} == {
            run.id: "cancelled",
            first.id: "completed",
            second.id: "cancelled",
        }
        assert [(one.kind, one.run_id) for one in tree.unstopped] == [("completed", first.id)]


async def test_a_child_whose_command_is_a_dead_letter_is_not_waited_for(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "IDLE_S", 0.01)

    async def spoil(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        spoiled = [
            record._replace(headers=((ORIGIN, b"x" * 301),)) if "leaf.inbox" in record.topic else record
            for record in outgoing
        ]
        return await commit(spoiled)

    hooked: Any = HookedLog(log, spoil)
    async with Worker(log, [Leaf], home=tmp_path / "leaf"), Client(log) as client:
        async with Worker(cast(EventLog, hooked), [Root], home=tmp_path):
            run = await client.start("root", calling("leaf"))
            await eventually(lambda: stored(log, log.topology.dlq))
            tree = await run.cancel_tree()
        assert [one.status for one in tree.runs] == ["cancelled", DEAD_LETTER]
        assert (tree.ended, tree.unstopped) == (True, ())


async def test_what_an_earlier_release_has_left_at_work_below_an_ended_run_is_cancelled(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(run_to_end, "_cancel", lambda *_: None)
        async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
            run = await client.start("root", calling("middle", calling("leaf"), ending="fails"))
            with pytest.raises(RunFailedError):
                await run.result()
            await at_work(log, 1)
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        tree = await run.cancel_tree("tidy up")
        assert [one.status for one in tree.runs] == ["failed", "cancelled", "cancelled"]
        assert tree.runs[1].reason == "tidy up"
        assert tree.asked


async def test_a_tree_that_has_ended_by_itself_is_asked_nothing(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        run = await client.start("root", calling("leaf"))
        await at_work(log, 1)
        [child] = await children(log, run)
        await child.signal("go")
        await run.result()
        tree = await run.cancel_tree()
        assert (tree.asked, tree.ended, tree.unstopped) == (False, True, ())
        assert await run.cancel_request() is None
        with pytest.raises(RunNotFoundError):
            await Run.other(run, "root", "nobody").cancel_tree()


async def test_who_may_not_cancel_a_tree_is_told_instead_of_waiting(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "IDLE_S", 0.01)
    policy = Policy.model_validate({"allow": [{"who": ["*"], "may": ["start", "signal", "register"]}]})
    async with Worker(log, list(AGENTS), home=tmp_path, policy=policy), Client(log) as client:
        run = await client.start("root", calling("leaf"))
        await at_work(log, 1)
        with pytest.raises(PermissionDeniedError, match=f"Run {run.id} was not cancelled"):
            await run.cancel_tree()
        [child] = await children(log, run)
        await child.signal("go")
        await run.result()


async def test_below_an_open_root_what_an_ended_run_has_left_is_told_once(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told twice: a run that its caller has told in its last commit is not asked again."""
    failing = calling("leaf", {}, {}, ending="first")
    async with Worker(log, list(AGENTS), home=tmp_path), Client(log) as client:
        with monkeypatch.context() as earlier:
            earlier.setattr(run_to_end, "_cancel", lambda *_: None)
            run = await client.start("root", calling("middle", failing, calling("leaf")))
            await at_work(log, 3)
            [left, _] = await children(log, run)
            [first, second] = await children(log, left)
            await first.signal("go")
            await left.result()
        tree = await run.cancel_tree()
        assert tree.ended
        statuses = {one.run_id: one.status for one in tree.runs}
        assert (statuses[left.id], statuses[first.id], statuses[second.id]) == (
            "completed",
            "completed",
            "cancelled",
        )
    told = Counter(record.key for record in await stored(log, log.topology.inbox("leaf"), types=CANCEL))
    assert set(told.values()) == {1}
