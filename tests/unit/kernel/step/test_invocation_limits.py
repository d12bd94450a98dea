"""Limits of calls: depth, cycles and numbers, judged by the caller and again by the agent that is called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import CallLimitError, RunFailedError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.standard import CapabilityInvoked, ReplyTo
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.delegating import (
    State,
    caller,
    events_of,
    offer,
    provider,
    replayed,
    runs_of,
    types,
    working,
)
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


async def down(state: State) -> dict[str, Any]:
    """Count down by calls of itself."""
    if not state["n"]:
        return {"value": 0}
    below = await current_step().invoke("count.down", {"n": state["n"] - 1}, allow_cycle=True)
    return {"value": below["value"] + 1}


async def begin(state: State) -> dict[str, Any]:
    return await current_step().invoke("count.down", {"n": state["n"]})  # type: ignore[no-any-return]


Counter = provider("counter", down, offer("count.down"))


async def test_a_chain_may_be_sixteen_calls_deep_and_not_deeper(log: EventLog, tmp_path: Path) -> None:
    async with working(log, tmp_path, Counter, caller(begin)), Client(log) as client:
        deep = await client.start("caller", {"n": 15})
        assert await deep.result(timeout=PATIENCE_S) == {"value": 15}
        deepest = await client.start("caller", {"n": 16})
        with pytest.raises(RunFailedError, match=r"17 levels deep, and 16 are allowed: caller → counter → "):
            await deepest.result(timeout=PATIENCE_S)
        assert len(await runs_of(client, "counter")) == 32
        for run in (deep, deepest):
            assert await replayed(run, caller(begin), log) == ""
    [asked] = await events_of(deep, "capability.invoked")
    assert asked.payload["path"] == ["caller"]
    assert asked.trace.depth == 0


async def test_a_cycle_without_consent_is_refused_before_it_is_sent(log: EventLog, tmp_path: Path) -> None:
    async def ping(state: State) -> dict[str, Any]:
        return await current_step().invoke("be.pong", {"n": 1})  # type: ignore[no-any-return]

    async def pong(state: State) -> dict[str, Any]:
        try:
            return await current_step().invoke("be.ping", {"n": 1})  # type: ignore[no-any-return]
        except CallLimitError as error:
            return {"value": error.message}

    agents = (
        provider("ping", ping, offer("be.ping")),
        provider("pong", pong, offer("be.pong", output_schema={})),
    )
    ping_agent = provider("ping", ping, offer("be.ping", output_schema={}))
    async with working(log, tmp_path, ping_agent, agents[1]), Client(log) as client:
        run = await client.start("ping", {"n": 1})
        said = "The call leads back to ping: ping → pong → ping."
        assert await run.result(timeout=PATIENCE_S) == {"value": said}
        assert len(await client.list_runs()) == 2
        [child] = await runs_of(client, "pong")
        handle = await client.get_run(child.run_id)
        assert types(await events_of(handle, "capability.refused")) == ["capability.refused"]
        assert await replayed(handle, agents[1], log) == ""


async def test_a_run_makes_no_more_calls_than_its_agent_allows(log: EventLog, tmp_path: Path) -> None:
    async def total(state: State) -> dict[str, Any]:
        for n in range(state["n"]):
            await current_step().invoke("sum.up", {"n": n})
        return {"value": state["n"]}

    doubler, few = provider("doubler", double), caller(total, max_calls=3)
    async with working(log, tmp_path, doubler, few), Client(log) as client:
        assert await (await client.start("caller", {"n": 3})).result(timeout=PATIENCE_S) == {"value": 3}
        run = await client.start("caller", {"n": 4})
        with pytest.raises(RunFailedError, match="CallLimitError: The run has made 3 calls of other agents"):
            await run.result(timeout=PATIENCE_S)
        assert await replayed(run, few, log) == ""


async def test_a_run_waits_for_no_more_answers_than_its_agent_allows(log: EventLog, tmp_path: Path) -> None:
    async def together(state: State) -> dict[str, Any]:
        step = current_step()
        calls = [step.invoke("sum.up", {"n": n}) for n in range(4)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        return {"value": [type(result).__name__ for result in results]}

    few = caller(together, max_open_calls=3)
    async with working(log, tmp_path, provider("doubler", double), few), Client(log) as client:
        run = await client.start("caller", {})
        assert await run.result(timeout=PATIENCE_S) == {"value": ["dict", "dict", "dict", "CallLimitError"]}
        assert await replayed(run, few, log) == ""


@pytest.mark.parametrize(
    ("depth", "path", "said"),
    [
        (16, ["a"] * 16 + ["caller"], "17 levels deep"),
        (40, [], "41 levels deep"),
        (0, ["a", "b", "caller"], "the call's chain of callers is wrong"),
        (2, ["a", "b", "victim"], "the call's chain of callers is wrong"),
        (2, ["a", "counter", "caller"], "leads back to counter"),
    ],
)
async def test_the_called_agent_judges_what_a_hostile_caller_says_of_itself(
    log: EventLog, tmp_path: Path, depth: int, path: list[str], said: str
) -> None:
    forged = CapabilityInvoked(
        run_id="forged",
        capability_id="count.down",
        version="1.0.0",
        caller_agent_id="caller",
        caller_run_id="nobody",
        target_agent_id="counter",
        target_agent_type="counter",
        registry_offset=10**15,
        input={"n": 0},
        reply_to=ReplyTo(agent_type="caller", run_id="nobody", call_id="forged"),
        path=path,
    )
    trace = TraceContext("1" * 32, "2" * 16, depth=depth)
    envelope = forged.to_envelope(
        AgentRef("caller", "caller"), trace, partition_key="forged", metadata={"to": "counter"}
    )
    async with working(log, tmp_path, Counter, caller(begin)), Client(log) as client:
        await log.append([envelope])
        await eventually(lambda: _ended(client))
        run = await client.get_run("forged")
        events = await events_of(run)
    assert types(events)[-1] == "command.refused"
    assert said.lower() in events[-1].payload["message"].lower()
    assert "kernel.node.entered" not in types(events)


async def _ended(client: Client) -> bool:
    return [bool(info.ended_ms) for info in await client.list_runs()] == [True]


async def test_a_refusal_of_the_called_agent_is_the_caller_s_error(log: EventLog, tmp_path: Path) -> None:
    shallow = provider("counter", down, offer("count.down"), max_call_depth=0)
    async with working(log, tmp_path, shallow, caller(begin)), Client(log) as client:
        run: Run = await client.start("caller", {"n": 0})
        with pytest.raises(RunFailedError, match=r"CallLimitError: count\.down failed at counter: .*1 level"):
            await run.result(timeout=PATIENCE_S)
        assert await replayed(run, caller(begin), log) == ""
