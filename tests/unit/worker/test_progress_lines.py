"""A log that is away is told of once in a while by a process, however many of its runs wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import LogFullError, LogUnavailableError
from noesium_stream.log import open_log
from noesium_stream.worker import Worker, host
from noesium_stream.worker.progress_lines import (
    EVERY_S,
    LOG_ANSWERS,
    STILL_ANSWERS,
    Lines,
    waiting_for_log,
)
from tests.support.reading import PATIENCE_S, eventually
from tests.support.sample_agents import Asker, Echo

pytestmark = pytest.mark.usefixtures("calm")

AWAY = LogUnavailableError("nobody answers")


def test_it_is_told_when_it_begins_and_again_while_it_lasts_and_all_else_at_once() -> None:
    clock, said = VirtualClock(), list[str]()
    lines = Lines(said.append, clock)
    for _ in range(3):
        lines(waiting_for_log(AWAY))
        lines("something else")
        lines(waiting_for_log(LogFullError("no room")))
    assert said == ["waiting for the log: nobody answers", *["something else"] * 3]
    clock.advance(EVERY_S)
    for _ in range(3):
        lines(waiting_for_log(AWAY))
    assert said[4:] == ["waiting for the log: nobody answers"]


def test_the_return_of_the_log_is_told_once_and_only_where_it_was_waited_for() -> None:
    clock, said = VirtualClock(), list[str]()
    lines = Lines(said.append, clock)
    lines(LOG_ANSWERS)
    assert said == []
    for _ in range(2):
        lines(waiting_for_log(AWAY))
        lines(LOG_ANSWERS)
        lines(LOG_ANSWERS)
        assert said[-2:] == ["waiting for the log: nobody answers", "the log answers again"]
        clock.advance(EVERY_S)
    assert len(said) == 4


def test_who_has_not_waited_tells_of_the_return_only_when_nobody_waits_any_more() -> None:
    clock, said = VirtualClock(), list[str]()
    lines = Lines(said.append, clock)
    for _ in range(2):
        lines(waiting_for_log(AWAY))
        lines(STILL_ANSWERS)
    assert said == ["waiting for the log: nobody answers"]
    lines(STILL_ANSWERS)
    lines(STILL_ANSWERS)
    assert said[1:] == ["the log answers again"]


async def test_an_idle_worker_tells_that_the_log_is_away_and_that_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "HEARTBEAT_S", 0.01)
    log = await open_log("memory://?partitions=1")
    said, append, away = list[str](), log.append, True

    async def appending(envelopes: Any, **options: Any) -> Any:
        if away and envelopes[0].event_type == "agent.heartbeat":
            raise AWAY
        return await append(envelopes, **options)

    monkeypatch.setattr(log, "append", appending)
    async with Worker(log, [Echo], home=tmp_path, progress=said.append):
        await eventually(lambda: said)
        away = False
        await eventually(lambda: len(said) > 1)
    assert said == ["waiting for the log: nobody answers", "the log answers again"]
    await log.close()


async def test_many_runs_that_delegate_while_the_log_is_away_tell_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://?partitions=4")
    said, asked, ensure, away = list[str](), list[Any](), log.ensure_topics, True

    async def ensuring(specs: Any, **options: Any) -> None:
        if away and any(spec.name == log.topology.inbox("echo") for spec in specs):
            asked.append(asyncio.current_task())
            raise AWAY
        await ensure(specs, **options)

    worker = Worker(log, [Echo, Asker], home=tmp_path, progress=said.append)
    async with worker, Client(log) as client:
        monkeypatch.setattr(log, "ensure_topics", ensuring)
        runs = [await client.start("asker", {"words": ["a"]}) for _ in range(8)]
        await eventually(lambda: len(asked) > 24)
        away = False
        for run in runs:
            assert (await run.result(timeout=PATIENCE_S))["replies"] == ["A"]
    assert len(set(asked)) == len(runs), "each of them has waited"
    assert said == ["waiting for the log: nobody answers", "the log answers again"]
    await log.close()
