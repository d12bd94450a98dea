"""`deadline=` of a call: nobody waits longer, on either side, and every execution says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream.client import Client, Run
from noesium_stream.clock import SystemClock
from noesium_stream.errors import DeadlineExceededError, RunFailedError
from noesium_stream.event.standard import CapabilityCompleted
from noesium_stream.kernel import current_step, kernel_compensation
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.delegating import (
    PURE,
    State,
    caller,
    events_of,
    letters,
    offer,
    provider,
    replayed,
    runs_of,
    send,
    types,
    working,
)
from tests.support.evicting import evict_at_once
from tests.support.hand_clock import HandClock
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


async def sleep(state: State) -> dict[str, Any]:
    await current_step().sleep(3600)
    return {"value": 1}


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


def calling(deadline: Any) -> Any:
    async def node(state: State) -> dict[str, Any]:
        try:
            value = await current_step().invoke("sum.up", {"n": 4}, deadline=deadline)
        except DeadlineExceededError as error:
            return {"value": error.message}
        return {"value": value["value"]}

    return node


Sleeper = provider("sleeper", sleep)


async def test_the_earlier_deadline_is_handed_on(log: EventLog, tmp_path: Path) -> None:
    moment = datetime(2040, 1, 1, tzinfo=UTC)
    doubler, node = provider("doubler", double), calling(moment)
    async with working(log, tmp_path, doubler, caller(node)), Client(log) as client:
        plain = await client.start("caller", {})
        short = await client.start("caller", {}, deadline=timedelta(hours=1))
        for run in (plain, short):
            assert await run.result(timeout=PATIENCE_S) == {"value": 8}
    [asked], [short_asked] = [await events_of(run, "capability.invoked") for run in (plain, short)]
    assert asked.payload["deadline_ms"] == round(moment.timestamp() * 1000)
    assert short_asked.payload["deadline_ms"] < asked.payload["deadline_ms"]
    [requested] = await events_of(short, "capability.requested")
    assert requested.payload["deadline_ms"] == asked.payload["deadline_ms"]


async def test_a_call_without_an_answer_ends_and_ends_the_run_that_was_called(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        async with working(log, tmp_path, Sleeper):
            pass
        async with working(log, tmp_path, caller(calling(0.05))):
            run = await client.start("caller", {})
            said = (await run.result(timeout=PATIENCE_S))["value"]
            assert said.startswith("sum.up was not answered by ")
            assert await replayed(run, caller(calling(0.05)), log) == ""
        async with working(log, tmp_path, Sleeper):
            await eventually(lambda: _over(client))
    events = types(await events_of(run))
    assert events.count("capability.expired") == events.count("run.cancel.requested") == 1
    assert events[-1] == "run.completed"


async def _over(client: Client) -> bool:
    return [run.status for run in await runs_of(client, "sleeper")] in (["cancelled"], ["failed"])


async def test_the_provider_ends_at_the_deadline_by_itself(log: EventLog, tmp_path: Path) -> None:
    async with working(log, tmp_path, Sleeper, caller(calling(0.2))), Client(log) as client:
        run = await client.start("caller", {})
        said = (await run.result(timeout=PATIENCE_S))["value"]
        assert said.startswith(
            ("sum.up was not answered by ", "sum.up failed at sleeper: the run had not ended")
        )
        assert await replayed(run, caller(calling(0.2)), log) == ""
        await eventually(lambda: _over(client))


async def test_a_late_answer_changes_nothing(log: EventLog, tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        value = (await calling(0.05)(state))["value"]
        return {"value": f"{value[:24]}, {await current_step().signal('go')}"}

    async with Client(log) as client:
        async with working(log, tmp_path, Sleeper):
            pass
        async with working(log, tmp_path, caller(node)):
            run = await client.start("caller", {})
            await eventually(lambda: _has(run, "capability.expired"))
            [asked] = await events_of(run, "capability.invoked")
            answer = CapabilityCompleted(
                run_id=asked.payload["run_id"],
                call_id=asked.payload["reply_to"]["call_id"],
                caller_run_id=run.id,
                capability_id="sum.up",
                provider_agent_id="sleeper",
                output={"value": 1},
            )
            await send(log, answer, "sleeper", run.id, "caller")
            await run.signal("go", "on")
            assert await run.result(timeout=PATIENCE_S) == {"value": "sum.up was not answered , on"}
            assert await letters(log) == []
            assert await replayed(run, caller(node), log) == ""
    assert await events_of(run, "capability.completed") == []


async def _has(run: Run, event_type: str) -> bool:
    return event_type in types(await events_of(run))


async def test_the_recorded_deadline_counts_after_a_restart_and_an_eviction(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict_at_once(monkeypatch)
    clock = SystemClock()
    due_ms = clock.now_ms() + 400
    async with Client(log) as client:
        async with working(log, tmp_path, Sleeper):
            pass
        async with working(log, tmp_path, caller(calling(0.4))):
            run = await client.start("caller", {})
            await eventually(lambda: _has(run, "capability.invoked"))
        async with working(log, tmp_path, caller(calling(3600))):
            assert "was not answered" in (await run.result(timeout=PATIENCE_S))["value"]
    [expired] = await events_of(run, "capability.expired")
    assert due_ms <= expired.payload["deadline_ms"] < due_ms + 60_000


async def test_no_other_provider_is_tried_when_the_time_is_over(log: EventLog, tmp_path: Path) -> None:
    slow = provider("slow", sleep, offer(priority=5, **PURE))
    other = provider("other", double, offer(**PURE))
    async with working(log, tmp_path, slow, other, caller(calling(0.1))), Client(log) as client:
        run = await client.start("caller", {})
        assert isinstance((await run.result(timeout=PATIENCE_S))["value"], str)
        assert await runs_of(client, "other") == []


async def booked() -> int:
    return 7


async def undo(state: State) -> dict[str, Any]:
    return {"value": (await current_step().invoke("sum.up", {"n": 4}))["value"]}


def undoing() -> Any:
    graph = StateGraph(State)
    graph.add_node("undo", undo)
    graph.add_edge(START, "undo")
    return graph.compile()


UNDOING = kernel_compensation()(undoing())


async def test_what_undoes_a_run_whose_deadline_has_passed_may_still_call(
    log: EventLog, tmp_path: Path
) -> None:
    async def node(state: State) -> dict[str, Any]:
        await current_step().effect("book", booked, compensate=f"{__name__}:UNDOING")
        await current_step().signal("never")
        return {}

    clock, agents = HandClock(), (provider("doubler", double), caller(node))
    async with working(log, tmp_path, *agents, clock=clock), Client(log, clock=clock) as client:
        run = await client.start("caller", {}, deadline=timedelta(minutes=1))
        await eventually(lambda: _has(run, "kernel.signal.awaited"))
        clock.advance(61)
        with pytest.raises(DeadlineExceededError):
            await run.result(timeout=PATIENCE_S)
        assert [info.status for info in await runs_of(client, "doubler")] == ["completed"]
    [asked] = await events_of(run, "capability.invoked")
    assert "deadline_ms" not in asked.payload


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), "soon", True])
async def test_what_is_no_deadline_is_refused(log: EventLog, tmp_path: Path, deadline: Any) -> None:
    async with working(log, tmp_path, caller(calling(deadline))), Client(log) as client:
        run = await client.start("caller", {})
        with pytest.raises(RunFailedError, match="ConfigError: deadline="):
            await run.result(timeout=PATIENCE_S)
    assert await events_of(run, "capability.requested") == []
