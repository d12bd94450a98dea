"""A run that was moved is verified, shown and forked on both sides of the move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.cli.drawing import draw
from noesium_stream.client import Client
from noesium_stream.client.operate.fork import dry_fork, fork
from noesium_stream.client.operate.replay import recording, state_at, verify, verify_open
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.client.views.causal_tree import causal_tree
from noesium_stream.errors import CheckpointError, ConfigError, RunFailedError
from noesium_stream.kernel import Migration, current_step
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually
from tests.unit.worker.runs.test_pinned_graph_moved import (
    CALLED,
    FINAL,
    MOVE,
    NEW,
    OLD,
    RENAMED,
    V2,
    New,
    Old,
    asked,
    chain,
    counted,
    first,
    last,
)


@pytest.fixture(autouse=True)
def _clean() -> None:
    CALLED.clear()


async def changed(state: Any) -> Any:
    step = current_step()
    answer = await step.interrupt("go on?")
    return {"items": ["before", answer.value]}


async def other(state: Any) -> Any:
    return {"items": ["other", state["count"]]}


def target(kind: Any, log: Any) -> ReplayTarget:
    return agent_target(kind, log)


async def finished(log: Any, home: Path, run: Any) -> None:
    async with Worker(log, [V2], home=home):
        await run.approve(value="yes")
        assert await run.result(timeout=PATIENCE_S) == FINAL


async def test_a_moved_run_verifies_itself_with_what_its_agent_carries(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        await finished(log, tmp_path, run)
        CALLED.clear()
        verdict = await verify(run, target(V2, log))
        assert (verdict.difference, verdict.note) == (None, None)
        assert verdict.steps == 3
        assert not CALLED


async def test_what_an_older_version_did_is_not_verified_without_it(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        await finished(log, tmp_path, run)
        verdict = await verify(run, target(agent_from_graph(NEW, version="2.0.0"), log))
        assert verdict.is_same
        assert verdict.steps == 2
        assert verdict.note == "not verified up to step 1 (version 1.0.0): this code does not carry it"


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (
            agent_from_graph(
                chain(New, first=first, ask=changed, last=last), version="2.0.0", migrations=[MOVE]
            ),
            "ask",
        ),
        (
            agent_from_graph(
                NEW, version="2.0.0", migrations=[Migration(OLD, state=lambda s: {**counted(s), "count": 11})]
            ),
            "the move differs at state.count",
        ),
        (
            agent_from_graph(NEW, version="2.0.0", migrations=[Migration(OLD, state=lambda s: 1 / 0)]),
            "the run is not moved any more",
        ),
        (
            agent_from_graph(
                chain(New, first=first, ask=NEW.nodes["ask"].runnable, last=other), version="2.0.0"
            ),
            "last",
        ),
    ],
)
async def test_a_difference_on_either_side_of_the_move_is_found(tmp_path: Path, kind: Any, what: str) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        await finished(log, tmp_path, run)
        verdict = await verify(run, target(kind, log))
        assert verdict.difference is not None
        assert what in str(verdict.difference)


async def test_the_states_on_both_sides_of_the_move(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        await finished(log, tmp_path, run)
        found, code = await recording(run), target(V2, log)
        assert await state_at(code, found, 0) == {"n": 1, "items": []}
        assert await state_at(code, found, 1) == {"n": 1, "items": ["first"]}
        assert await state_at(code, found, 1, moved=True) == {"count": 10, "items": ["first"]}
        assert await state_at(code, found, 2) == {"count": 10, "items": ["first", "before", "yes"]}
        assert await state_at(code, found, 3) == FINAL
        without = target(agent_from_graph(NEW, version="2.0.0"), log)
        assert await state_at(without, found, 3) == FINAL
        with pytest.raises(CheckpointError, match=r"Step 1 .* was made by version 1\.0\.0, which"):
            await state_at(without, found, 1)


@pytest.mark.parametrize(
    ("at", "values", "items"),
    [
        (1, {}, None),
        (1, {"count": 7}, ["first", "before", "no", "last", 7]),
        (2, {"count": 8}, ["first", "before", "yes", "last", 8]),
        (3, {}, FINAL["items"]),
    ],
)
async def test_a_moved_run_is_forked_from_the_move_on(
    tmp_path: Path, at: int, values: dict[str, Any], items: Any
) -> None:
    async with asked("memory://", tmp_path) as (log, client, run):
        await finished(log, tmp_path, run)
        with pytest.raises(ConfigError, match=r"was moved to version 2\.0\.0 before step 2, and step 0"):
            await fork(client, run, 0, {}, target(V2, log))
        expected = items or ["first", "before", "no", "last", 10]
        dry = await dry_fork(run, at, values, target(V2, log))
        assert dry.result is not None, "the recorded answer is taken again"
        assert dry.result["items"] == ["yes" if item == "no" else item for item in expected]
        async with Worker(log, [V2], home=tmp_path):
            branch = await fork(client, run, at, values, target(V2, log))
            if at == 1:
                await eventually(branch.approvals)
                await branch.approve(value="no")
            result = await branch.result(timeout=PATIENCE_S)
            assert result["items"] == expected
            assert (await verify(branch, target(V2, log))).difference is None


async def test_open_runs_that_can_be_moved_are_told(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, client, run):
        before = [event async for event in run.events(follow=False)]
        (verdict,) = await verify_open(client, target(V2, log))
        assert verdict.is_same
        assert verdict.note == "can be moved by a migration before step 2: 1.0.0 to 2.0.0"
        renamed = agent_from_graph(
            RENAMED, version="2.0.0", migrations=[Migration(OLD, state=counted, nodes={"ask": "question"})]
        )
        (verdict,) = await verify_open(client, target(renamed, log))
        assert "cannot be moved (yet): The node ask is under way in step 2" in str(verdict.difference)
        diverging = chain(New, first=first, ask=changed, last=last)
        (verdict,) = await verify_open(
            client, target(agent_from_graph(diverging, version="2.0.0", migrations=[MOVE]), log)
        )
        assert verdict.difference is not None
        assert verdict.difference.node == "ask"
        (verdict,) = await verify_open(client, target(agent_from_graph(NEW, version="2.0.0"), log))
        assert not verdict.is_same
        assert [event async for event in run.events(follow=False)] == before


async def test_the_move_is_a_line_of_the_tree(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        await finished(log, tmp_path, run)
        tree = causal_tree(run.id, [event async for event in run.events(follow=False)])
        assert [(move.source, move.target, move.step) for move in tree.moves] == [("1.0.0", "2.0.0", 2)]
        assert any("moved from version 1.0.0 to 2.0.0 before step 2" in line for line in draw(tree))


async def left(state: Any) -> Any:
    return {"items": ["left"]}


async def right(state: Any) -> Any:
    return {"items": [await current_step().signal("go")]}


async def changed_left(state: Any) -> Any:
    return {"items": ["another left"]}


def fork_of(schema: type, extra: Any = None, left: Any = left) -> Any:
    builder = StateGraph(schema)
    builder.add_node("left", left)
    builder.add_node("right", right)
    builder.add_node("end", last)
    builder.add_edge(START, "left")
    builder.add_edge(START, "right")
    builder.add_edge(["left", "right"], "end")
    if extra is not None:
        builder.add_node("extra", extra)
        builder.add_edge("end", "extra")
    return builder


async def test_what_had_ended_beside_others_before_the_move_is_the_older_version_s(tmp_path: Path) -> None:
    old, middle, new = fork_of(Old), fork_of(New), fork_of(New, other, changed_left)
    line = [Migration(old, state=counted), Migration(middle, "2.0.0")]
    log = await open_log("memory://")
    try:
        async with Client(log) as client:
            async with Worker(log, [agent_from_graph(old)], home=tmp_path):
                run = await client.start("sample", {"n": 1, "items": []})
                await eventually(lambda: ended(run, "left"))
            kind = agent_from_graph(new, version="3.0.0", migrations=line)
            async with Worker(log, [kind], home=tmp_path):
                await run.signal("go", "right")
                result = await run.result(timeout=PATIENCE_S)
            assert result == {"count": 10, "items": ["left", "right", "last", 10, "other", 10]}
            verdict = await verify(run, target(kind, log))
            assert (verdict.difference, verdict.note) == (None, None)
            found = await recording(run)
            assert await state_at(target(kind, log), found, 0) == {"n": 1, "items": []}
            assert (await state_at(target(kind, log), found, 1))["items"] == ["left", "right"]
            # `left` is compared with the version that ran it.
            altered = [Migration(fork_of(Old, left=changed_left), state=counted), line[1]]
            verdict = await verify(
                run, target(agent_from_graph(new, version="3.0.0", migrations=altered), log)
            )
            assert verdict.difference is not None
            assert (verdict.difference.step, verdict.difference.node) == (1, "left")
    finally:
        await log.close()


async def ended(run: Any, node: str) -> bool:
    found = [event async for event in run.events(follow=False) if event.event_type == "kernel.node.completed"]
    return node in [event.payload["node"] for event in found]


async def test_a_run_that_was_undone_after_its_move_verifies_itself(tmp_path: Path) -> None:
    async with asked("memory://", tmp_path) as (log, _, run):
        async with Worker(log, [V2], home=tmp_path):
            await run.approve(value="fail")
            with pytest.raises(RunFailedError, match="told to"):
                await run.result(timeout=PATIENCE_S)
        CALLED.clear()
        verdict = await verify(run, target(V2, log))
        assert (verdict.difference, verdict.status) == (None, "failed")
        assert not CALLED
