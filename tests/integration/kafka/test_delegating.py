"""Calls between agents on a real Kafka: waiting for a provider over a takeover, many calls, and failover."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
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
    types,
    working,
)
from tests.support.evicting import evict_at_once
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log(kafka: KafkaServer) -> AsyncIterator[EventLog]:
    log = await open_log(f"{kafka.url('d' + secrets.token_hex(4))}&partitions=1")
    yield log
    await log.close()


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


async def fail(state: State) -> dict[str, Any]:
    raise ValueError("no paper")


async def call(state: State) -> dict[str, Any]:
    given = [{"n": n} for n in range(state["n"])]
    found = await current_step().invoke_many("sum.up", given, limit=10)
    return {"value": [one["value"] for one in found]}


async def test_a_run_waits_for_its_provider_over_an_eviction_and_a_takeover(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict_at_once(monkeypatch)
    async with Client(log) as client:
        for home in ("1", "2"):
            worker = working(log, tmp_path / home, caller(call))
            async with worker:
                if home == "1":
                    run = await client.start("caller", {"n": 40})
                await eventually(lambda: sum(tenure.evicted_runs for tenure in worker.tenures()) == 1)  # noqa: B023
                info = await run.info()
                assert {wait.shown for wait in info.waits_for} == {"a provider of sum.up"}
        async with working(log, tmp_path / "3", caller(call), provider("doubler", double)):
            assert await run.result(timeout=PATIENCE_S) == {"value": [2 * n for n in range(40)]}
            assert await replayed(run, caller(call), log) == ""
    events = types(await events_of(run))
    for kind in ("capability.requested", "capability.invoked", "capability.completed"):
        assert events.count(kind) == 40


async def test_the_next_provider_is_called_after_a_failure(log: EventLog, tmp_path: Path) -> None:
    first = provider("first", fail, offer(priority=5, **PURE))
    agents = first, provider("second", double, offer(**PURE)), caller(call)
    async with working(log, tmp_path, *agents), Client(log) as client:
        run = await client.start("caller", {"n": 5})
        assert await run.result(timeout=PATIENCE_S) == {"value": [2 * n for n in range(5)]}
        assert await replayed(run, agents[2], log) == ""
        assert len(await events_of(run, "capability.invoked")) == 10
