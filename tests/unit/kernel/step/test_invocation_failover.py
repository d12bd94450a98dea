"""Another provider after a failure where that does no harm; and errors that pass up with their chain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import CapabilityError, RunFailedError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.standard import CapabilityCompleted, SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.delegating import (
    PURE,
    State,
    caller,
    events_of,
    offer,
    provider,
    replayed,
    send,
    types,
    working,
)
from tests.support.reading import PATIENCE_S, eventually

TRIED: list[str] = []


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    TRIED.clear()
    log = await open_log("memory://")
    yield log
    await log.close()


async def double(state: State) -> dict[str, Any]:
    TRIED.append("double")
    return {"value": 2 * state["n"]}


async def fail(state: State) -> dict[str, Any]:
    TRIED.append("fail")
    raise ValueError("no paper")


async def call(state: State) -> dict[str, Any]:
    return {"value": (await current_step().invoke("sum.up", {"n": 4}))["value"]}


def first(agent_type: str = "first", **given: Any) -> Any:
    return provider(agent_type, fail, offer(priority=5, **given))


async def asked_of(run: Run) -> list[EventEnvelope]:
    return await events_of(run, "capability.invoked")


@pytest.mark.parametrize("side_effects", [SideEffectClass.PURE, SideEffectClass.IDEMPOTENT])
async def test_a_call_that_may_be_repeated_goes_to_the_next_provider(
    log: EventLog, tmp_path: Path, side_effects: SideEffectClass
) -> None:
    agents = first(side_effects=side_effects), provider("second", double), caller(call)
    async with working(log, tmp_path, *agents), Client(log) as client:
        run = await client.start("caller", {})
        assert await run.result(timeout=PATIENCE_S) == {"value": 8}
        asked = [event.payload for event in await asked_of(run)]
        assert [(one["target_agent_id"], one["attempt"]) for one in asked] == [("first", 1), ("second", 2)]
        assert len({one["run_id"] for one in asked}) == 2
        assert await replayed(run, agents[2], log) == ""
    assert TRIED == ["fail", "double"]
    assert types(await events_of(run)).count("capability.requested") == 1


async def test_a_call_with_effects_is_made_once(log: EventLog, tmp_path: Path) -> None:
    async with (
        working(log, tmp_path, first(), provider("second", double), caller(call)),
        Client(log) as client,
    ):
        run = await client.start("caller", {})
        with pytest.raises(RunFailedError, match=r"sum\.up failed at first: no paper"):
            await run.result(timeout=PATIENCE_S)
        assert await replayed(run, caller(call), log) == ""
    assert TRIED == ["fail"]


async def test_a_call_that_was_not_begun_goes_to_the_next_provider(log: EventLog, tmp_path: Path) -> None:
    """Whatever its effects are: the first one has refused it before it did anything."""
    shut = provider("shut", fail, offer(priority=5), max_call_depth=0)
    async with working(log, tmp_path, shut, provider("second", double), caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        assert await run.result(timeout=PATIENCE_S) == {"value": 8}
        assert await replayed(run, caller(call), log) == ""
    assert TRIED == ["double"]


async def test_at_most_three_providers_are_tried_and_the_last_error_is_the_call_s(
    log: EventLog, tmp_path: Path
) -> None:
    agents = [first(f"fails-{n}", **PURE) for n in range(4)]
    async with working(log, tmp_path, *agents, caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        with pytest.raises(RunFailedError, match=r"sum\.up failed at fails-\d: no paper"):
            await run.result(timeout=PATIENCE_S)
        assert len(await asked_of(run)) == len(TRIED) == 3
        assert await replayed(run, caller(call), log) == ""


async def test_nobody_else_is_asked_in_a_second_execution_if_nobody_was_there(
    log: EventLog, tmp_path: Path
) -> None:
    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        try:
            value = await step.invoke("sum.up", {"n": 4})
        except CapabilityError as error:
            value = error.message
        await step.signal("go")
        return {"value": value}

    async with Client(log) as client:
        async with working(log, tmp_path, first(**PURE), caller(node)):
            run = await client.start("caller", {})

            async def waits() -> bool:
                return "kernel.signal.awaited" in types(await events_of(run))

            await eventually(waits)
        async with working(log, tmp_path, provider("second", double), caller(node)):
            await run.signal("go", 1)
            assert await run.result(timeout=PATIENCE_S) == {"value": "sum.up failed at first: no paper"}
            assert await replayed(run, caller(node), log) == ""
    [unresolved] = await events_of(run, "capability.unresolved")
    assert unresolved.payload["considered"] == ["sum.up 1.0.0 of first: its agent is to be left out"]


async def test_the_second_provider_is_found_again_after_a_crash(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with working(log, tmp_path, provider("second", double, offer(priority=1))):
            pass
        async with working(log, tmp_path, first(**PURE), caller(call)):
            run = await client.start("caller", {})
            await eventually(lambda: _asked(run, 2))
        async with working(log, tmp_path, provider("second", double, offer(priority=1)), caller(call)):
            assert await run.result(timeout=PATIENCE_S) == {"value": 8}
            assert len(await asked_of(run)) == 2
    assert TRIED == ["fail", "double"]


async def _asked(run: Run, count: int) -> bool:
    return len(await asked_of(run)) == count


async def test_a_wrong_result_of_a_pure_capability_is_not_the_end(log: EventLog, tmp_path: Path) -> None:
    """Its provider's process has answered what its contract forbids."""
    hostile = provider("first", fail, offer(priority=5, **PURE))
    async with Client(log) as client:
        async with working(log, tmp_path, hostile):
            pass
        async with working(log, tmp_path, provider("second", double), caller(call)):
            run = await client.start("caller", {})
            await eventually(lambda: _asked(run, 1))
            [asked] = await asked_of(run)
            wrong = CapabilityCompleted(
                run_id=asked.payload["run_id"],
                call_id=asked.payload["reply_to"]["call_id"],
                caller_run_id=run.id,
                capability_id="sum.up",
                provider_agent_id="first",
                output=[],
            )
            await send(log, wrong, "first", run.id, "caller")
            assert await run.result(timeout=PATIENCE_S) == {"value": 8}
            assert await replayed(run, caller(call), log) == ""
    assert types(await events_of(run, "capability.refused")) == ["capability.refused"]


async def test_the_error_of_a_grandchild_is_read_at_the_root(log: EventLog, tmp_path: Path) -> None:
    async def lower(state: State) -> dict[str, Any]:
        return await current_step().invoke("level.two", {"n": 1})  # type: ignore[no-any-return]

    async def upper(state: State) -> dict[str, Any]:
        return await current_step().invoke("level.one", {"n": 1})  # type: ignore[no-any-return]

    agents = provider("one", lower, offer("level.one")), provider("two", fail, offer("level.two"))
    async with working(log, tmp_path, *agents, caller(upper)), Client(log) as client:
        run = await client.start("caller", {})
        with pytest.raises(RunFailedError) as caught:
            await run.result(timeout=PATIENCE_S)
    chain = "level.one failed at one: level.two failed at two: no paper"
    assert f"CapabilityError: {chain}" in str(caught.value)
