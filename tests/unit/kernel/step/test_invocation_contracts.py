"""Arguments and results are judged on both sides; a hostile answer or command harms its own call only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import CapabilityInputError, CapabilityOutputError, RunFailedError
from noesium_stream.event import EventEnvelope
from noesium_stream.event.payload import judge
from noesium_stream.event.standard import CapabilityCompleted, CapabilityInvoked, ReplyTo
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.delegating import (
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
from tests.support.reading import PATIENCE_S, eventually

BODIES: list[int] = []


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    BODIES.clear()
    log = await open_log("memory://")
    yield log
    await log.close()


async def double(state: State) -> dict[str, Any]:
    BODIES.append(state["n"])
    return {"value": 2 * state["n"]}


async def lie(state: State) -> dict[str, Any]:
    return {"value": "much"}


async def call(state: State) -> dict[str, Any]:
    return {"value": (await current_step().invoke("sum.up", {"n": 4}))["value"]}


Doubler = provider("doubler", double)


async def test_wrong_arguments_are_refused_before_anything_is_sent(log: EventLog, tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        try:
            await current_step().invoke("sum.up", {"n": "four"})
        except CapabilityInputError as error:
            return {"value": error.message}
        return {"value": 0}

    async with working(log, tmp_path, Doubler, caller(node)), Client(log) as client:
        run = await client.start("caller", {})
        said = 'sum.up does not take these arguments: input.n: "four" is not of type "integer".'
        assert await run.result(timeout=PATIENCE_S) == {"value": said}
        assert await runs_of(client, "doubler") == []
        assert await replayed(run, caller(node), log) == ""
    ends = await events_of(run, "capability.refused", "capability.invoked")
    assert [(end.event_type, end.payload["error_type"]) for end in ends] == [
        ("capability.refused", "CapabilityInputError")
    ]


async def test_a_refusal_stays_in_a_second_execution_under_another_contract(
    log: EventLog, tmp_path: Path
) -> None:
    async def node(state: State) -> dict[str, Any]:
        step = current_step()
        try:
            value = await step.invoke("sum.up", {"n": "four"})
        except CapabilityInputError:
            value = "refused"
        await step.signal("go")
        return {"value": value}

    async with Client(log) as client:
        async with working(log, tmp_path, Doubler, caller(node)):
            run = await client.start("caller", {})

            async def refused() -> bool:
                return "capability.refused" in types(await events_of(run))

            await eventually(refused)
        lax = provider("lax", lie, offer(version="1.1.0", input_schema={}, output_schema={}, priority=9))
        async with working(log, tmp_path, lax, caller(node)):
            await run.signal("go", 1)
            assert await run.result(timeout=PATIENCE_S) == {"value": "refused"}


async def test_a_wrong_result_is_the_provider_s_failure_and_names_the_field(
    log: EventLog, tmp_path: Path
) -> None:
    Liar = provider("liar", lie)
    async with working(log, tmp_path, Liar, caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        with pytest.raises(
            RunFailedError, match=r'sum\.up failed at liar: The result .* output\.value: "much"'
        ):
            await run.result(timeout=PATIENCE_S)
        [child] = await runs_of(client, "liar")
        assert child.status == "failed"
        handle = await client.get_run(child.run_id)
        [failed] = await events_of(handle, "run.failed")
        assert failed.payload["error_type"] == "CapabilityOutputError"
        assert await replayed(handle, Liar, log) == ""
        assert await replayed(run, caller(call), log) == ""


async def _asked(client: Client, run: Run) -> EventEnvelope:
    async def found() -> bool:
        return bool(await events_of(run, "capability.invoked"))

    await eventually(found)
    [asked] = await events_of(run, "capability.invoked")
    return asked


def answer(asked: EventEnvelope, **changed: Any) -> CapabilityCompleted:
    fields = {
        "run_id": asked.payload["run_id"],
        "call_id": asked.payload["reply_to"]["call_id"],
        "caller_run_id": asked.payload["caller_run_id"],
        "capability_id": "sum.up",
        "provider_agent_id": "doubler",
        "output": {"value": 1},
    }
    return CapabilityCompleted(**{**fields, **changed})


async def test_a_hostile_result_fails_its_own_call_only(log: EventLog, tmp_path: Path) -> None:
    """The provider's process answers what its contract forbids: the caller judges it as well."""

    async def node(state: State) -> dict[str, Any]:
        try:
            return {"value": (await current_step().invoke("sum.up", {"n": state["n"]}))["value"]}
        except CapabilityOutputError as error:
            return {"value": error.message}

    async with Client(log) as client:
        async with working(log, tmp_path, Doubler):
            pass
        async with working(log, tmp_path, caller(node)):
            bad, good = [await client.start("caller", {"n": n}) for n in (1, 2)]
            asked = await _asked(client, bad)
            await send(log, answer(asked, output={"value": "x"}), "doubler", bad.id, "caller")
            said = 'The result of sum.up is not what it promises: output.value: "x" is not of type "integer".'
            assert await bad.result(timeout=PATIENCE_S) == {"value": said}
            async with working(log, tmp_path, Doubler):
                assert await good.result(timeout=PATIENCE_S) == {"value": 4}
            assert await replayed(bad, caller(node), log) == ""
            assert await replayed(good, caller(node), log) == ""
    assert types(await events_of(bad, "capability.refused")) == ["capability.refused"]


async def test_an_answer_for_somebody_else_is_a_dead_letter(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with working(log, tmp_path, Doubler):
            pass
        async with working(log, tmp_path, caller(call)):
            first, second = [await client.start("caller", {}) for _ in range(2)]
            theirs = await _asked(client, second)
            await _asked(client, first)
            other = {"caller_run_id": first.id, "output": {"value": 666}}
            await send(log, answer(theirs, **other), "doubler", first.id, "caller")
            await send(log, answer(theirs, output={"value": 666}), "mallory", second.id, "caller")
            async with working(log, tmp_path, Doubler):
                for run in (first, second):
                    assert await run.result(timeout=PATIENCE_S) == {"value": 8}
            why = [letter.payload["failure_reason"] for letter in await letters(log)]
    assert len(why) == 2
    assert any("the run made no call" in reason for reason in why)
    assert any("the call was made to doubler" in reason for reason in why)


async def test_an_answer_counts_once_and_a_late_one_not_at_all(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with working(log, tmp_path, Doubler):
            pass
        async with working(log, tmp_path, caller(call)):
            run, cancelled = [await client.start("caller", {}) for _ in range(2)]
            asked, late = await _asked(client, run), await _asked(client, cancelled)
            await cancelled.cancel()
            await eventually(lambda: _ended(cancelled))
            for value in (1, 2):
                await send(log, answer(asked, output={"value": value}), "doubler", run.id, "caller")
            await send(log, answer(late), "doubler", cancelled.id, "caller")
            assert await run.result(timeout=PATIENCE_S) == {"value": 1}
            last = await client.start("caller", {})
            await _asked(client, last)
            assert await letters(log) == []
    assert len(await events_of(run, "capability.completed")) == 1
    assert await events_of(cancelled, "capability.completed") == []


async def _ended(run: Run) -> bool:
    return (await run.info()).status == "cancelled"


async def test_a_result_that_no_record_holds_is_the_provider_s_failure(log: EventLog, tmp_path: Path) -> None:
    async def huge(state: State) -> dict[str, Any]:
        return {"value": "x" * 2_000_000}

    big = provider("big", huge, offer(output_schema={}))
    async with working(log, tmp_path, big, caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        with pytest.raises(RunFailedError, match=r"sum\.up failed at big: .*bytes"):
            await run.result(timeout=PATIENCE_S)


async def test_a_provider_s_endless_error_is_cut(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        async with working(log, tmp_path, Doubler):
            pass
        async with working(log, tmp_path, caller(call)):
            run = await client.start("caller", {})
            asked = await _asked(client, run)
            wrong = answer(asked, output=None, error="x" * 900_000, error_type="Odd")
            await send(log, wrong, "doubler", run.id, "caller")
            with pytest.raises(RunFailedError) as caught:
                await run.result(timeout=PATIENCE_S)
    assert len(str(caught.value)) < 10_000


async def test_the_provider_refuses_wrong_arguments_and_runs_nothing(log: EventLog, tmp_path: Path) -> None:
    """A hostile caller does not judge before it sends."""
    async with working(log, tmp_path, Doubler, caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        await run.result(timeout=PATIENCE_S)
        asked = (await _asked(client, run)).payload
        await send(log, _forged(asked, "forged-1", n="four"), "caller", "forged-1", "doubler")
        events = await _forged_run(client)
    assert types(events) == ["capability.invoked", "run.started", "capability.completed", "command.refused"]
    answered = events[2].payload
    assert (answered["error_type"], answered["began"]) == ("CapabilityInputError", False)
    assert BODIES == [4]


async def _forged_run(client: Client) -> list[EventEnvelope]:
    async def ended() -> bool:
        return any(info.run_id == "forged-1" and info.ended_ms for info in await client.list_runs())

    await eventually(ended)
    return await events_of(await client.get_run("forged-1"))


def _forged(asked: dict[str, Any], run_id: str, n: Any = 4, **changed: Any) -> CapabilityInvoked:
    reply_to = ReplyTo(agent_type="caller", run_id=asked["caller_run_id"], call_id=run_id)
    own = {"run_id": run_id, "input": {"n": n}, "reply_to": reply_to}
    return CapabilityInvoked(**{**asked, **own, **changed})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "no such type"},
        {"$ref": "https://example.com/schema.json"},
        {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}},
    ],
)
async def test_a_schema_that_cannot_be_used_fails_the_call_and_says_so(
    log: EventLog, tmp_path: Path, schema: dict[str, Any]
) -> None:
    schema = {**schema, "$ref": schema.get("$ref", "#/$defs/d0")} if "$defs" in schema else schema
    odd = provider("odd", double, offer(input_schema=schema))
    async with working(log, tmp_path, odd, caller(call)), Client(log) as client:
        run = await client.start("caller", {})
        with pytest.raises(RunFailedError, match="its input schema cannot be used"):
            await run.result(timeout=PATIENCE_S)
    assert BODIES == []


async def test_a_schema_is_compiled_once(log: EventLog, tmp_path: Path) -> None:
    async def node(state: State) -> dict[str, Any]:
        for n in range(5):
            await current_step().invoke("sum.up", {"n": n})
        return {"value": 0}

    judge._judge.cache_clear()
    async with working(log, tmp_path, Doubler, caller(node)), Client(log) as client:
        await (await client.start("caller", {})).result(timeout=PATIENCE_S)
    assert judge._judge.cache_info().misses == 2
