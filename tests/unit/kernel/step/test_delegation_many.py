"""`Step.invoke_many`: bounded, in order, the same calls on every execution, and not quadratic."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
from noesium_stream.errors import CapabilityError, RunFailedError
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.worker.runs.run_session import RunSession
from tests.support.delegating import State, caller, events_of, provider, replayed, types, working
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


async def double(state: State) -> dict[str, Any]:
    if state["n"] % 10 == 7:
        raise ValueError(f"{state['n']} is odd")
    return {"value": 2 * state["n"]}


Doubler = provider("doubler", double)


def many(count: int, limit: int = 50, **options: Any) -> Any:
    async def node(state: State) -> dict[str, Any]:
        given = [{"n": n * 10} for n in range(count)]
        found = await current_step().invoke_many("sum.up", given, limit=limit, **options)
        return {"value": [one["value"] for one in found]}

    return caller(node)


async def test_a_thousand_children_are_called_a_few_at_a_time(log: EventLog, tmp_path: Path) -> None:
    agent = many(1000)
    async with working(log, tmp_path, Doubler, agent), Client(log) as client:
        run = await client.start("caller", {})
        result = await run.result(timeout=PATIENCE_S)
        assert result == {"value": [20 * n for n in range(1000)]}
        events = await events_of(run, "capability.invoked", "capability.completed")
        assert await replayed(run, agent, log) == ""
    open_calls = most = 0
    for event in events:
        open_calls += 1 if event.event_type == "capability.invoked" else -1
        most = max(most, open_calls)
    assert (len(events), open_calls, most) == (2000, 0, 50)


async def test_every_call_is_made_and_the_first_failure_in_order_is_raised(
    log: EventLog, tmp_path: Path
) -> None:
    numbers = [1, 27, 2, 17, 3]

    def agent(**options: Any) -> Any:
        async def node(state: State) -> dict[str, Any]:
            calls = [{"n": n} for n in numbers]
            found = await current_step().invoke_many("sum.up", calls, limit=2, **options)
            return {
                "value": [str(one) if isinstance(one, CapabilityError) else one["value"] for one in found]
            }

        return caller(node)

    async with working(log, tmp_path, Doubler, agent()), Client(log) as client:
        run = await client.start("caller", {})
        with pytest.raises(RunFailedError, match=r"sum\.up failed at doubler: 27 is odd"):
            await run.result(timeout=PATIENCE_S)
        assert len(await events_of(run, "capability.completed")) == 5
        assert await replayed(run, agent(), log) == ""
    async with working(log, tmp_path, Doubler, agent(return_exceptions=True)), Client(log) as client:
        run = await client.start("caller", {})
        failed = "sum.up failed at doubler: {} is odd"
        expected = [2, failed.format(27), 4, failed.format(17), 6]
        assert await run.result(timeout=PATIENCE_S) == {"value": expected}
        assert await replayed(run, agent(return_exceptions=True), log) == ""


async def test_equal_calls_keep_their_places_over_a_crash(log: EventLog, tmp_path: Path) -> None:
    served = []

    async def next_number(state: State) -> dict[str, Any]:
        served.append(state["n"])
        return {"value": len(served)}

    async def node(state: State) -> dict[str, Any]:
        found = await current_step().invoke_many("sum.up", [{"n": 1}] * 5, limit=2)
        await current_step().signal("go")
        return {"value": [one["value"] for one in found]}

    server = provider("server", next_number)
    async with Client(log) as client:
        async with working(log, tmp_path, server, caller(node)):
            run = await client.start("caller", {})

            async def waits() -> bool:
                return "kernel.signal.awaited" in types(await events_of(run))

            await eventually(waits)
        answers = {
            event.payload["call_id"]: event.payload["output"]["value"]
            for event in await events_of(run, "capability.completed")
        }
        asked = [event.payload["run_id"] for event in await events_of(run, "capability.invoked")]
        async with working(log, tmp_path, server, caller(node)):
            await run.signal("go", 1)
            assert await run.result(timeout=PATIENCE_S) == {"value": [answers[one] for one in asked]}
    assert len(served) == 5


async def test_a_crash_in_the_middle_repeats_no_call(log: EventLog, tmp_path: Path) -> None:
    agent = many(40, 10)
    async with Client(log) as client:
        async with working(log, tmp_path, Doubler, agent):
            run = await client.start("caller", {})

            async def begun() -> bool:
                return len(await events_of(run, "capability.completed")) >= 10

            await eventually(begun)
        async with working(log, tmp_path, Doubler, agent):
            assert await run.result(timeout=PATIENCE_S) == {"value": [20 * n for n in range(40)]}
        assert len(await events_of(run, "capability.invoked")) == 40


@pytest.mark.parametrize("limit", [0, -1, True, "many"])
async def test_a_limit_is_a_number_of_calls(log: EventLog, tmp_path: Path, limit: Any) -> None:
    async with working(log, tmp_path, Doubler, many(3, limit)), Client(log) as client:
        with pytest.raises(RunFailedError, match="is no number of calls"):
            await (await client.start("caller", {})).result(timeout=PATIENCE_S)


async def test_no_calls_give_no_results(log: EventLog, tmp_path: Path) -> None:
    async with working(log, tmp_path, Doubler, many(0)), Client(log) as client:
        assert await (await client.start("caller", {})).result(timeout=PATIENCE_S) == {"value": []}


async def test_an_answer_wakes_only_the_few_calls_under_way(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the work grows with the calls, and not with their square."""
    waits = []
    wait = RunSession._wait

    async def counted(session: RunSession, deadline_ms: int | None) -> None:
        waits.append(session.run_id)
        await wait(session, deadline_ms)

    monkeypatch.setattr(RunSession, "_wait", counted)
    async with working(log, tmp_path, Doubler, many(300, 5)), Client(log) as client:
        run = await client.start("caller", {})
        await run.result(timeout=PATIENCE_S)
    assert waits.count(run.id) <= 300 * 5
