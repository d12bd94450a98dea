"""What comes between two lines of a call: an answer at its deadline, and the end of the node that called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import DeadlineExceededError, KernelError
from noesium_stream.event.standard import CapabilityCompleted
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker.agent_directory import Directory
from tests.support.delegating import (
    PURE,
    State,
    caller,
    events_of,
    offer,
    provider,
    replayed,
    runs_of,
    send,
    types,
    working,
)
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


def has(run: Run, event_type: str) -> Callable[[], Awaitable[bool]]:
    async def found() -> bool:
        return event_type in types(await events_of(run))

    return found


async def test_an_answer_that_comes_while_the_call_ends_is_its_end(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new owner finds the deadline passed, and looks for the inbox to send the cancellation to."""

    async def node(state: State) -> dict[str, Any]:
        try:
            value = (await current_step().invoke("sum.up", {"n": 4}, deadline=60))["value"]
        except DeadlineExceededError:
            value = -1
        await current_step().signal("go")
        return {"value": value}

    clock, learn_inbox = HandClock(), Directory.learn_inbox

    async def answered_meanwhile(directory: Directory, agent_type: str) -> None:
        await learn_inbox(directory, agent_type)
        if agent_type == "doubler":
            answer = CapabilityCompleted(
                run_id=asked.payload["run_id"],
                call_id=asked.payload["reply_to"]["call_id"],
                caller_run_id=run.id,
                capability_id="sum.up",
                provider_agent_id="doubler",
                output={"value": 8},
            )
            await send(log, answer, "doubler", run.id, "caller")
            await eventually(has(run, "capability.completed"))

    async with working(log, tmp_path, provider("doubler", double), clock=clock):
        pass
    async with Client(log, clock=clock) as client:
        async with working(log, tmp_path, caller(node), clock=clock):
            run = await client.start("caller", {})
            await eventually(has(run, "capability.invoked"))
        [asked] = await events_of(run, "capability.invoked")
        clock.advance(61)
        with monkeypatch.context() as patch:
            patch.setattr(Directory, "learn_inbox", answered_meanwhile)
            async with working(log, tmp_path, caller(node), clock=clock):
                await eventually(has(run, "kernel.signal.awaited"))
        async with working(log, tmp_path, caller(node), clock=clock):
            await run.signal("go", 1)
            assert await run.result(timeout=PATIENCE_S) == {"value": 8}
            assert await replayed(run, caller(node), log) == ""
    assert await events_of(run, "capability.expired", "run.cancel.requested") == []


async def test_a_call_that_a_node_has_left_running_tries_no_other_provider(
    log: EventLog, tmp_path: Path
) -> None:
    left: list[asyncio.Task[Any]] = []

    async def fail(state: State) -> dict[str, Any]:
        await current_step().signal("fail")
        raise ValueError("no paper")

    async def leave(state: State) -> dict[str, Any]:
        step = current_step()
        left.append(asyncio.create_task(step.invoke("sum.up", {"n": 4})))
        await step.signal("end")
        return {"value": 1}

    async def stay(state: State) -> dict[str, Any]:
        await current_step().signal("go")
        return {}

    first, second = provider("first", fail, offer(priority=5, **PURE)), provider("second", double)
    agents = first, second, caller(leave, then=stay)
    async with working(log, tmp_path, *agents), Client(log) as client:
        run = await client.start("caller", {})
        await eventually(has(run, "capability.invoked"))
        await run.signal("end", 1)
        await eventually(has(run, "kernel.checkpoint.created"))
        [called] = await runs_of(client, "first")
        await (await client.get_run(called.run_id)).signal("fail", 1)
        with pytest.raises(KernelError, match="has ended, and something that it left running makes a call"):
            await left[0]
        await run.signal("go", 1)
        assert await run.result(timeout=PATIENCE_S) == {"value": 1}
        assert await runs_of(client, "second") == []
    assert len(await events_of(run, "capability.invoked")) == 1
