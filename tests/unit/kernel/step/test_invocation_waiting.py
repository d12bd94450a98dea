"""A call that nobody can answer yet: it waits on the log, without a slot, visible, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import CapabilityNotFoundError, RunCancelledError, RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker.worker import Worker
from tests.support.delegating import State, caller, events_of, offer, provider, replayed, types, working
from tests.support.evicting import evict_at_once
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


async def call(state: State) -> dict[str, Any]:
    return {"value": (await current_step().invoke("sum.up", {"n": 4}))["value"]}


Doubler = provider("doubler", double)


def commits(events: list[Any]) -> list[str]:
    return [(record.header("noesium_commit") or b"").decode().split(":")[0] for record in events]


async def waits_for_provider(run: Run) -> bool:
    return any(wait.kind == "provider" for wait in (await run.info()).waits_for)


def tenures(worker: Worker) -> list[Any]:
    return [tenure for tenure in worker.tenures() if tenure.context.agent_type == "caller"]


async def test_the_request_is_in_the_commit_of_the_call(log: EventLog, tmp_path: Path) -> None:
    async with working(log, tmp_path, Doubler, caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        assert await run.result(timeout=PATIENCE_S) == {"value": 8}
        records = [record async for record in run.records(follow=False)]
        asked = [r for r in records if r.event_type in ("capability.requested", "capability.invoked")]
        assert [record.event_type for record in asked] == ["capability.requested", "capability.invoked"]
        assert len(set(commits(asked))) == 1
        requested, invoked = (record.envelope for record in asked)
        assert requested.payload["call_id"] == invoked.payload["reply_to"]["call_id"]
        assert requested.payload["capability_id"] == "sum.up"
        assert await replayed(run, caller(call), log) == ""


async def test_a_provider_that_comes_later_is_called(log: EventLog, tmp_path: Path) -> None:
    async with working(log, tmp_path, caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        await eventually(lambda: waits_for_provider(run))
        info = await run.info()
        assert info.status == "waiting"
        assert [wait.shown for wait in info.waits_for] == ["a provider of sum.up"]
        assert await replayed(run, caller(call), log) == ""
        async with working(log, tmp_path / "2", Doubler):
            assert await run.result(timeout=PATIENCE_S) == {"value": 8}
        assert await replayed(run, caller(call), log) == ""
    events = await events_of(run, "capability.requested", "capability.invoked")
    assert types(events) == ["capability.requested", "capability.invoked"]


async def test_a_waiting_run_has_no_slot_and_only_the_right_offer_wakes_it(
    log: EventLog, tmp_path: Path
) -> None:
    bodies = []

    async def picky(state: State) -> dict[str, Any]:
        bodies.append(1)
        return await current_step().invoke("sum.up", {"n": 4}, version="^2")  # type: ignore[no-any-return]

    async def quick(state: State) -> dict[str, Any]:
        return {"value": state["n"]}

    async def node(state: State) -> dict[str, Any]:
        return await (picky if state["n"] < 3 else quick)(state)

    worker = working(log, tmp_path, caller(node), concurrency=1)
    async with worker, Client(log) as client:
        waiting = [await client.start("caller", {"n": n}) for n in range(3)]
        for run in waiting:
            await eventually(lambda run=run: waits_for_provider(run))
        other = await client.start("caller", {"n": 3})
        assert await other.result(timeout=PATIENCE_S) == {"value": 3}
        async with working(log, tmp_path / "1", Doubler):
            again = await client.start("caller", {"n": 5})
            assert await again.result(timeout=PATIENCE_S) == {"value": 5}
            assert len(bodies) == 3
            assert all([await waits_for_provider(run) for run in waiting])
        second = provider("second", double, offer(version="2.1.0"))
        async with working(log, tmp_path / "2", second):
            for run in waiting:
                assert await run.result(timeout=PATIENCE_S) == {"value": 8}


async def test_an_evicted_run_goes_on_when_there_is_a_provider(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict_at_once(monkeypatch)
    worker = working(log, tmp_path, caller(call))
    async with worker, Client(log) as client:
        runs = [await client.start("caller", {}) for _ in range(5)]
        await eventually(lambda: sum(tenure.evicted_runs for tenure in tenures(worker)) == 5)
        async with working(log, tmp_path / "2", Doubler):
            for run in runs:
                assert await run.result(timeout=PATIENCE_S) == {"value": 8}
                assert types(await events_of(run)).count("capability.requested") == 1


async def test_the_next_owner_waits_for_the_provider_as_well(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict_at_once(monkeypatch)
    async with Client(log) as client:
        first = working(log, tmp_path, caller(call))
        async with first:
            run = await client.start("caller", {})
            await eventually(lambda: sum(tenure.evicted_runs for tenure in tenures(first)) == 1)
        second = working(log, tmp_path, caller(call))
        async with second:
            await eventually(lambda: sum(tenure.evicted_runs for tenure in tenures(second)) == 1)
            async with working(log, tmp_path / "2", Doubler):
                assert await run.result(timeout=PATIENCE_S) == {"value": 8}
        assert types(await events_of(run)).count("capability.requested") == 1


async def test_cancel_and_the_deadlines_end_the_wait(log: EventLog, tmp_path: Path) -> None:
    async def short(state: State) -> dict[str, Any]:
        return await current_step().invoke("sum.up", {"n": 4}, deadline=0.05)  # type: ignore[no-any-return]

    async with working(log, tmp_path, caller(call), caller(short, "short")), Client(log) as client:
        run = await client.start("caller", {})
        await eventually(lambda: waits_for_provider(run))
        await run.cancel()
        with pytest.raises(RunCancelledError):
            await run.result(timeout=PATIENCE_S)
        late = await client.start("caller", {}, deadline=timedelta(seconds=0.05))
        with pytest.raises(RunFailedError, match="its deadline"):
            await late.result(timeout=PATIENCE_S)
        own = await client.start("short", {})
        with pytest.raises(RunFailedError, match=r"DeadlineExceededError: Nobody offered sum\.up by"):
            await own.result(timeout=PATIENCE_S)
        assert await replayed(own, caller(short, "short"), log) == ""
    ends = await events_of(own, "capability.expired", "capability.unresolved")
    assert types(ends) == ["capability.expired"]


async def test_a_call_may_fail_at_once_and_says_why_each_offer_was_not_taken(
    log: EventLog, tmp_path: Path
) -> None:
    considered = []

    async def node(state: State) -> dict[str, Any]:
        for id, version in (("sum.up", "^2"), ("sum.upp", None), ("other", None)):
            try:
                await current_step().invoke(id, {"n": 4}, version=version, on_unresolved="fail")
            except CapabilityNotFoundError as error:
                considered.append(error.considered)
        return {"value": 3}

    async with working(log, tmp_path, Doubler, caller(node)), Client(log) as client:
        run = await client.start("caller", {})
        assert await run.result(timeout=PATIENCE_S) == {"value": 3}
        assert considered == [
            ("sum.up 1.0.0 of doubler: the version 1.0.0 is not in ^2",),
            ("sum.up has another id",),
            (),
        ]
        unresolved = await events_of(run, "capability.unresolved")
        assert [tuple(event.payload["considered"]) for event in unresolved] == considered
        assert await replayed(run, caller(node), log) == ""
    assert considered[3:] == considered[:3], "in the replay"


async def test_an_unresolved_call_stays_so_in_a_second_execution(log: EventLog, tmp_path: Path) -> None:
    """There is a provider by then, and the body goes the way that it went."""

    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        try:
            value = await step.invoke("sum.up", {"n": 4}, on_unresolved="fail")
        except CapabilityNotFoundError as error:
            value = str(error.message)
        await step.signal("go")
        return {"value": value}

    async with Client(log) as client:
        async with working(log, tmp_path, caller(node)):
            run = await client.start("caller", {})
            await eventually(lambda: _reached(run, "capability.unresolved"))
        async with working(log, tmp_path, Doubler, caller(node)):
            await run.signal("go", 1)
            assert await run.result(timeout=PATIENCE_S) == {"value": "No agent offers sum.up."}
        assert types(await events_of(run)).count("capability.invoked") == 0


async def _reached(run: Run, event_type: str) -> bool:
    return event_type in types(await events_of(run))


async def test_one_task_follows_the_registry_however_many_runs_wait(log: EventLog, tmp_path: Path) -> None:
    async with working(log, tmp_path, caller(call)), Client(log) as client:
        for _ in range(20):
            run = await client.start("caller", {})
        await eventually(lambda: waits_for_provider(run))
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert names.count("follow the registry") == 1
