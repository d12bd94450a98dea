"""A run's outcome on its way to the log: nothing gets behind it, nothing is lost, the worker may close."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.errors import FencedError, RunCancelledError
from noesium_stream.kernel import current_step
from noesium_stream.kernel.decorators import kernel_compensation
from noesium_stream.kernel.step.position import this_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from tests.support.holding import HoldingLog
from tests.support.reading import PATIENCE_S

_TURNS = 200
"""Of the event loop, in which a record of the inbox reaches its owner on a log in this process."""


UNDONE: list[str] = []


async def pay() -> str:
    return "paid"


@kernel_compensation()
async def pay_back(result: str) -> None:
    UNDONE.append(result)


def waiter() -> Any:
    """An agent that waits for a signal if it comes before the run has ended."""

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        return {"signals": len(this_step().journal.history.signals.get("go", ()))}

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    return agent_from_graph(graph)


@pytest.mark.parametrize("error", [None, FencedError("told to")], ids=["reaches the log", "is lost"])
async def test_nothing_follows_the_outcome_of_a_run(tmp_path: Path, error: Exception | None) -> None:
    async with asyncio.timeout(PATIENCE_S):
        inner = await open_log("memory://?partitions=1")
        log = HoldingLog(inner, error)
        async with Worker(cast(EventLog, log), [waiter()], home=tmp_path), Client(inner) as client:
            run = await client.start("sample", {})
            await log.held.wait()
            await run.signal("go")
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            log.go.set()
            await run.result()
            after = await client.start("sample", {})  # behind the signal: that was dealt with
            await after.result()
            topic = inner.topology.journal("sample")
            events = [
                record.event_type
                async for record in inner.read(topic, {}, until=await inner.end(topic))
                if record.key == run.id
            ]
            assert events[-1] == "run.completed"
            # The run that was not over yet has heard it.
            assert events.count("run.signalled") == (0 if error is None else 1)
        await inner.close()


@pytest.mark.parametrize("fails", [False, True], ids=["with a result", "with an error"])
async def test_a_run_that_comes_to_its_end_while_its_cancellation_is_accepted_is_cancelled(
    tmp_path: Path, fails: bool
) -> None:
    go = asyncio.Event()
    UNDONE.clear()

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        await current_step().effect("pay", pay, compensate=pay_back)
        await go.wait()
        if fails:
            raise ValueError("it fails by itself")
        return {}

    graph = StateGraph(dict).add_sequence([("node", node)]).add_edge(START, "node")
    async with asyncio.timeout(PATIENCE_S):
        inner = await open_log("memory://?partitions=1")
        accepting = HoldingLog(inner, None, "run.cancel.requested")
        ending = HoldingLog(
            cast(EventLog, accepting), None, "kernel.node.failed" if fails else "kernel.node.completed"
        )
        agents = [agent_from_graph(graph)]
        async with Worker(cast(EventLog, ending), agents, home=tmp_path), Client(inner) as client:
            run = await client.start("sample", {})
            async for event in run.events():
                if event.event_type == "effect.completed":
                    break
            go.set()
            await ending.held.wait()
            await run.cancel()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            ending.go.set()
            await accepting.held.wait()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            accepting.go.set()
            with pytest.raises(RunCancelledError):
                await run.result()
        assert UNDONE == ["paid"]
        await inner.close()


async def test_a_partition_is_given_up_while_a_run_ends_as_cancelled(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S):
        inner = await open_log("memory://?partitions=2")
        log = cast(EventLog, held := HoldingLog(inner, None, "run.cancelled"))
        agents = [waiter()]
        async with Client(inner) as client:
            # The second of the partitions is the one that goes to whoever joins.
            while partition_of((run := await client.start("sample", {})).id, 2) != 1:
                pass
            await run.cancel()
            async with Worker(log, agents, home=tmp_path) as worker:
                ended = asyncio.create_task(worker.wait())
                await held.held.wait()
                async with Worker(inner, agents, home=tmp_path):
                    for _ in range(_TURNS):
                        await asyncio.sleep(0)
                    held.go.set()
                    while not (await shares(inner))[1:]:
                        await asyncio.sleep(0)
                    with pytest.raises(RunCancelledError):
                        await run.result()
                    assert not ended.done()  # the worker that gave it up lives
        await inner.close()


async def shares(log: EventLog) -> list[int]:
    """How many partitions each worker has that has any."""
    members = await log.members(log.topology.workers("sample"))
    return [len(member.partitions) for member in members if member.partitions]


@pytest.mark.parametrize("error", [None, FencedError("told to")], ids=["reaches the log", "is lost"])
async def test_an_answer_that_came_too_late_for_what_was_lost_is_not_lost_with_it(
    tmp_path: Path, error: Exception | None
) -> None:
    """The deadline of a question has passed; the answer comes while nobody knows whether the log has that."""

    async def node(state: dict[str, Any]) -> dict[str, Any]:
        wait = timedelta(milliseconds=200)
        answer = await current_step().interrupt("really?", timeout=wait, on_timeout=False)
        return {"approved": answer.approved}

    graph = StateGraph(dict).add_sequence([("node", node)]).add_edge(START, "node")
    agents = [agent_from_graph(graph)]
    async with asyncio.timeout(PATIENCE_S):
        inner = await open_log("memory://?partitions=1")
        log = cast(EventLog, HoldingLog(inner, error, "approval.expired"))
        async with Worker(log, agents, home=tmp_path, keep_state=True), Client(inner) as client:
            run = await client.start("sample", {})
            while not (asked := await run.approvals()):
                await asyncio.sleep(0)
            await log.held.wait()  # type: ignore[attr-defined]
            await run._send(asked[0].answer(True, None, "anna"), asked[0].event_id)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            log.go.set()  # type: ignore[attr-defined]
            assert (await run.result())["approved"] == (error is not None)
            types = [event.event_type async for event in run.events(follow=False)]
        await inner.close()
    assert types.count("approval.answered") + types.count("approval.expired") == 1
