"""`noesium show --follow`: the steps of a tree as they happen, in lines of bounded width and safe text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream import escapes
from noesium_stream.cli.follow_tree import WIDTH, follow_tree, lines_of
from noesium_stream.client import Client, Run
from noesium_stream.client.views.tree_reader import TreeMember, TreeRecord
from noesium_stream.clock import SystemClock
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import ApprovalRequested, NodeFailed, RunFailed
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.tree_agents import AGENTS, Leaf, Middle, Root, calling
from tests.support.trees import at_work, children, nothing_left

URLS = {"memory": "memory://?partitions=2", "sqlite": "sqlite:///{}/log.db?partitions=2"}


@pytest.fixture(params=list(URLS))
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(URLS[request.param].format(tmp_path))
    async with asyncio.timeout(PATIENCE_S):
        yield log
    await log.close()


def following(run: Run, *, as_json: bool = False) -> asyncio.Task[None]:
    return asyncio.create_task(follow_tree(run.tree_reader(), run.id, on_log="", as_json=as_json))


async def test_the_steps_of_children_and_grandchildren_that_begin_later_are_shown_until_the_root_ends(
    log: EventLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Worker(log, [Leaf], home=tmp_path / "0"):
        pass
    async with Client(log) as client, Worker(log, [Root], home=tmp_path / "1"):
        run = await client.start("root", calling("middle", calling("leaf", {"question": "go on?"})))
        follows = following(run)
        async with Worker(log, [Middle], home=tmp_path / "2"):
            await eventually(lambda: stored(log, log.topology.inbox("leaf"), types=("capability.invoked",)))
            async with Worker(log, [Leaf], home=tmp_path / "3"):
                await eventually(run.questions)
                await run.approve(by="ann")
                await run.result()
                await follows
                [child] = await children(log, run)
                [grandchild] = await children(log, child)
    lines = capsys.readouterr().out.splitlines()
    root, middle, leaf = f"root {run.id[:13]}", f"  middle {child.id[:13]}", f"    leaf {grandchild.id[:13]}"
    assert {line[: len(leaf)].rstrip()[:20] for line in lines} >= {one[:20] for one in (root, middle, leaf)}
    of_leaf = [line.removeprefix(leaf).split("  ") for line in lines if line.startswith(leaf)]
    assert [words[-1] for words in of_leaf if "asks" not in words[-1]][:2] == [
        "leaf 1.0.0 begins",
        "ann approved",
    ]
    assert any(line.strip().startswith(f"noesium approve {grandchild.id}") for line in lines)
    begun = [
        next(at for at, line in enumerate(lines) if line.startswith(who)) for who in (root, middle, leaf)
    ]
    assert begun == sorted(begun)
    for who in (root, middle, leaf):
        assert sum(line.startswith(f"{who}  completed") for line in lines) == 1
    assert begun == sorted(begun)
    assert all(len(line) <= WIDTH for line in lines)


async def test_it_ends_with_the_root_though_a_run_that_nobody_waits_for_is_open(
    log: EventLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Worker(log, [Leaf], home=tmp_path / "0"):
        pass
    async with Client(log) as client, Worker(log, [Root], home=tmp_path):
        run = await client.start("root", calling("leaf", ending="fails"))
        await following(run, as_json=True)
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert events[-1]["event"]["event_type"] == "run.failed"
        assert {(one["run_id"], one["depth"], one["parent_run_id"]) for one in events} == {(run.id, 0, None)}


async def test_who_breaks_it_off_leaves_nothing_behind(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client, Worker(log, list(AGENTS), home=tmp_path):
        run = await client.start("root", calling("leaf"))
        await at_work(log, 1)
        before = asyncio.all_tasks()
        follows = following(run)
        await eventually(lambda: len(asyncio.all_tasks() - before) > 2)
        follows.cancel()
        await asyncio.gather(follows, return_exceptions=True)
        await nothing_left(before)


def record_of(event: DomainEvent, member: TreeMember) -> TreeRecord:
    clock = SystemClock()
    made = root_event(
        event, AgentRef("leaf", "leaf", "local", clock.uuid7()), clock, partition_key=member.run_id
    )
    return TreeRecord(member, Record("t", 0, 0, 0, member.run_id, [], b"", None), made)  # type: ignore[arg-type]


def test_a_question_that_the_width_cuts_is_followed_by_the_command_that_shows_it() -> None:
    member = TreeMember("018f0000-0000-7000-8000-000000000001", "leaf")
    event = ApprovalRequested(
        run_id=member.run_id,
        approval_id="780e5dae",
        node="ask",
        question="Is it right? " * 5,
        fingerprint="f",
    )
    read, answer = f"noesium approvals {member.run_id}", f"noesium approve {member.run_id} 780e5dae"
    for width, commands in ((70, [read, answer]), (WIDTH, [answer])):
        _, *shown = lines_of(record_of(event, member), width)
        assert [line.strip() for line in shown] == commands


def test_a_line_is_bounded_and_shows_what_a_terminal_would_obey() -> None:
    member = TreeMember("018f0000-0000-7000-8000-000000000001", "leaf", depth=1_000)
    hostile = "\x1b]0;title\x07 two\nlines " + "x" * 5_000
    failed = NodeFailed(
        run_id=member.run_id,
        node="work",
        step=1,
        task_path="pull:work",
        attempt=1,
        error_type="ValueError",
        message=hostile,
        duration_ms=1,
    )
    ended = RunFailed(run_id=member.run_id, error_type="ValueError", message=hostile, duration_ms=1)
    for event in (failed, ended):
        [line] = lines_of(record_of(event, member), 100)
        shown = escapes.line(line, color=False)
        assert "\\x1b]0;title\\x07 two" in shown
        assert shown.startswith(" " * 16 + "leaf 018f0000-0000")
        assert len(shown) <= 100
        assert shown.isprintable()
