"""`CheckpointManager`: checkpoints by their ids, folded from the log."""

from __future__ import annotations

import asyncio
import operator
from datetime import date
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import CheckpointManager, Client, Durability, KernelExecutor
from noesium_stream.agent import agent_from_graph
from noesium_stream.client.operate.fork import fork
from noesium_stream.errors import CheckpointError, RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S

bodies: list[str] = []


class State(TypedDict, total=False):
    n: int
    days: Annotated[list[date], operator.add]
    answer: str


def first(state: State) -> dict[str, Any]:
    bodies.append("first")
    return {"n": state["n"] + 1, "days": [date(2026, 1, 1)]}


def second(state: State) -> dict[str, Any]:
    bodies.append("second")
    return {"n": state["n"] * 10, "days": [date(2026, 1, 2)]}


async def wait(state: State) -> dict[str, Any]:
    bodies.append("wait")
    return {"answer": await current_step().signal("go")}


def graph(*nodes: Any) -> Any:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    before = START
    for node in nodes:
        builder.add_node(node)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    return builder.compile()


BEGAN = {"n": 1, "days": []}
FIRST = {"n": 2, "days": [date(2026, 1, 1)]}
SECOND = {"n": 20, "days": [date(2026, 1, 1), date(2026, 1, 2)]}


async def test_checkpoints_are_loaded_and_replayed_from_by_another_process_on_the_same_file(
    tmp_path: Path,
) -> None:
    bodies.clear()
    url = f"sqlite:///{tmp_path}/log.db"
    async with KernelExecutor(graph(first, second, wait), url, "sums", home=tmp_path) as executor:
        run = await executor.start(BEGAN)
        created = []
        async for event in run.events():
            if event.event_type == "kernel.checkpoint.created":
                created.append(event.payload["checkpoint_id"])
            if event.event_type == "kernel.node.entered" and event.payload["node"] == "wait":
                break
    assert created == [f"{run.id}/1", f"{run.id}/2"]
    log = await open_log(url)
    try:
        manager = CheckpointManager(graph(first, second, wait), log, "sums")
        assert await manager.load(f"{run.id}/0") == BEGAN
        assert await manager.load(created[0]) == FIRST
        assert await manager.load(created[1]) == SECOND
        assert await manager.replay_from(created[0]) == SECOND
        assert await manager.latest(run.id) == created[1]
    finally:
        await log.close()
    assert bodies.count("first") == bodies.count("second") == 1, "no node runs"
    async with KernelExecutor(graph(first, second, wait), url, "sums", home=tmp_path) as executor:
        run = await executor.client.get_run(run.id)
        await run.signal("go", "yes")
        await executor.resume(run.id, timeout=PATIENCE_S)
        manager = CheckpointManager(graph(first, second, wait), executor.client.log, "sums")
        assert await manager.replay_from(created[0]) == {**SECOND, "answer": "yes"}
        assert await manager.load(created[0]) == FIRST
        branch = await fork(executor.client, run, 1, {})
        await branch.signal("go", "no")
        await branch.result(timeout=PATIENCE_S)
        assert await manager.load(f"{branch.id}/1") == FIRST
        assert (await manager.replay_from(f"{branch.id}/1"))["answer"] == "no"


async def test_a_save_point_is_on_the_log_though_the_run_keeps_its_steps_back(tmp_path: Path) -> None:
    log = await open_log("memory://")
    saved: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    go = asyncio.Event()

    async def save(state: State) -> dict[str, Any]:
        saved.set_result(await manager.save(state, "save"))
        await go.wait()
        return {"answer": "saved"}

    built = graph(first, second, save)
    manager = CheckpointManager(built, log, "sums")
    agent = agent_from_graph(built, "sums", durability=Durability.EXIT)
    try:
        async with Worker(log, [agent], home=tmp_path), Client(log) as client:
            run = await client.start("sums", BEGAN)
            checkpoint = await asyncio.wait_for(saved, PATIENCE_S)
            assert checkpoint == f"{run.id}/2"
            types = [event.event_type async for event in run.events(follow=False)]
            assert types.count("kernel.node.completed") == types.count("kernel.checkpoint.created") == 2
            assert await manager.load(checkpoint) == SECOND
            go.set()
            await run.result(timeout=PATIENCE_S)
            assert await manager.replay_from(checkpoint) == {**SECOND, "answer": "saved"}
    finally:
        await log.close()


async def test_a_node_saves_what_its_run_has_come_to_and_nothing_else(tmp_path: Path) -> None:
    log = await open_log("memory://")
    state: dict[str, Any] = {"n": 7}
    name = "save"

    async def save(_: State) -> dict[str, Any]:
        await manager.save(state, name)
        return {}

    built = graph(first, save)
    manager = CheckpointManager(built, log, "sums")
    try:
        async with Worker(log, [agent_from_graph(built, "sums")], home=tmp_path), Client(log) as client:
            with pytest.raises(RunFailedError, match="The node save saves a state with another n than"):
                await (await client.start("sums", BEGAN)).result(timeout=PATIENCE_S)
            state["n"], name = 2, "first"
            with pytest.raises(RunFailedError, match="cannot save a checkpoint of the node first"):
                await (await client.start("sums", BEGAN)).result(timeout=PATIENCE_S)
            name = "save"
            await (await client.start("sums", BEGAN)).result(timeout=PATIENCE_S)
    finally:
        await log.close()
    with pytest.raises(CheckpointError, match="no node of a run calls this"):
        await manager.save(FIRST, "first")


async def test_what_is_no_checkpoint_of_these_runs_is_said_in_one_sentence(tmp_path: Path) -> None:
    log = await open_log("memory://")
    agents = [agent_from_graph(graph(first), "sums"), agent_from_graph(graph(second), "others")]
    try:
        async with Worker(log, agents, home=tmp_path), Client(log) as client:
            run, other = [await client.start(kind, BEGAN) for kind in ("sums", "others")]
            for each in (run, other):
                await each.result(timeout=PATIENCE_S)
            manager = CheckpointManager(graph(first), log, "sums")
            assert await manager.load(f"{run.id}/1") == FIRST
            for wrong, said in {
                "": "is no checkpoint's id",
                run.id: "is no checkpoint's id",
                f"{run.id}/-1": "is no checkpoint's id",
                f"{run.id}/one": "is no checkpoint's id",
                f"{run.id}/2": "has completed the steps 0 to 1",
                f"{run.id[:-4]}/1": "There is no run",
                f"{'0' * 36}/1": "There is no run",
                f"{other.id}/1": "is one of others, and these are the checkpoints of sums",
            }.items():
                for ask in (manager.load, manager.replay_from):
                    with pytest.raises(CheckpointError, match=said):
                        await ask(wrong)
    finally:
        await log.close()
