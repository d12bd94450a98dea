"""A worker that takes partitions over says from whom."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.agent import BaseAgent
from noesium_stream.client import Client
from noesium_stream.errors import (
    CorruptRecordError,
    EventValidationError,
    FencedError,
    LogCorruptError,
    LogForbiddenError,
    LogTruncatedError,
    LogUnavailableError,
)
from noesium_stream.log import EventLog, open_log
from noesium_stream.log.members import this_process
from noesium_stream.worker import Worker, host
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.heartbeats import last_heartbeats
from noesium_stream.worker.ownership import takeovers
from noesium_stream.worker.progress_lines import ranges
from tests.support.handlers import Sold, Watcher, append_by_key
from tests.support.reading import eventually
from tests.support.sample_agents import Echo


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "HEARTBEAT_S", 0.01)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    found = await open_log("memory://?partitions=4")
    found.catalogue.register(Sold)
    yield found
    await found.close()


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that end without a word, as killed ones do."""

    async def silent(self: host.Host, event: Any, *patience: float) -> bool:
        return event.TYPE == "agent.stopped" or await say(self, event, *patience)

    say = host.Host._say_if_possible
    monkeypatch.setattr(host.Host, "_say_if_possible", silent)


async def at_work(log: EventLog, home: Path, agent: type[BaseAgent], expected: list[str]) -> None:
    """Let a worker take all partitions, and report that; it says what is expected, and no more."""
    said: list[str] = []
    async with Worker(log, [agent], home=home, progress=said.append) as worker, Client(log) as client:

        async def reported() -> bool:
            owned = [one for one in await client.workers() if one.instance_id == worker.instance_id]
            return len(owned) == 4

        await eventually(reported)
        await eventually(lambda: len(said) >= len(expected))
    assert said == expected


async def test_who_has_left_in_an_orderly_way_is_not_named(log: EventLog, tmp_path: Path) -> None:
    await at_work(log, tmp_path, Echo, [])
    async with Worker(log, [Echo], home=tmp_path) as worker:
        await eventually(lambda: len(worker.tenures()) == 4)
        assert await takeovers.takeover_lines(log, [one.context for one in worker.tenures()]) == []


@pytest.mark.usefixtures("killed")
async def test_the_first_owner_names_nobody_and_the_next_one_names_it(log: EventLog, tmp_path: Path) -> None:
    await at_work(log, tmp_path, Echo, [])
    for _ in range(2):
        await at_work(log, tmp_path, Echo, [f"echo: partitions 0-3 taken over from {this_process()}"])


@pytest.mark.usefixtures("killed")
async def test_so_does_the_owner_of_what_a_handler_reads(log: EventLog, tmp_path: Path) -> None:
    await append_by_key(log, [("a", Sold(amount=1))])
    await at_work(log, tmp_path, Watcher, [])
    topic = log.topology.events("sales")
    line = f"watcher: partitions 0-3 of {topic} taken over from {this_process()}"
    await at_work(log, tmp_path, Watcher, [line])


@pytest.mark.usefixtures("killed")
async def test_an_owner_without_a_heartbeat_is_named_by_its_instance(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = log.append

    async def without_heartbeats(envelopes: Any, **options: Any) -> Any:
        if envelopes[0].event_type == "agent.heartbeat":
            return []
        return await append(envelopes, **options)

    monkeypatch.setattr(log, "append", without_heartbeats)
    async with Worker(log, [Echo], home=tmp_path) as first:
        await eventually(lambda: len(first.tenures()) == 4)
    monkeypatch.setattr(log, "append", append)
    instance = first.instance_id[:13]
    await at_work(log, tmp_path, Echo, [f"echo: partitions 0-3 taken over from instance {instance}"])


async def test_a_log_that_is_away_meanwhile_holds_nothing_up(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*args: Any) -> list[str]:
        raise LogUnavailableError("nobody answers")

    monkeypatch.setattr(host, "takeover_lines", away)
    await at_work(log, tmp_path, Echo, [])


@pytest.mark.parametrize(
    "error",
    [
        LogTruncatedError("t", 0, 1, 2),
        LogCorruptError("the file is damaged"),
        LogForbiddenError("may not read"),
        CorruptRecordError("t", 0, 1, EventValidationError("no envelope", reason="bytes")),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("agent", [Echo, Watcher])
async def test_what_cannot_be_read_for_a_line_is_said_once_and_ends_no_worker(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, agent: type[BaseAgent]
) -> None:
    asked: list[PartitionContext] = []

    async def broken(log: EventLog, taken: list[PartitionContext]) -> list[str]:
        asked.extend(taken)
        raise error

    monkeypatch.setattr(host, "takeover_lines", broken)
    await append_by_key(log, [("a", Sold(amount=1))])
    said: list[str] = []
    async with Worker(log, [agent], home=tmp_path, progress=said.append) as worker:
        [its_host] = worker._hosts
        await eventually(lambda: len(asked) == 4)
        # Whoever takes a partition later, and has known the host from before, is asked for as well.
        owner = next(iter(its_host._owners.values()))
        owner.lose(FencedError("taken"))
        await eventually(lambda: len(asked) == 5)
        [beating] = worker._heartbeats
        assert not beating.done()
    assert [line for line in said if "taking it again" not in line] == [
        f"{its_host.agent_type}: it is not known from whom partitions were taken: "
        f"{'no answer for 5 s' if isinstance(error, TimeoutError) else error.args[0]}"
    ]


async def test_an_owner_from_long_ago_is_not_searched_for(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_work(log, tmp_path, Echo, [])
    read: list[dict[int, int]] = []
    reading = log.read

    def counted(topic: str, cursor: Any, **options: Any) -> Any:
        if topic == log.topology.journal("echo") and options["types"] == ("partition.acquired",):
            read.append({number: end - cursor[number] for number, end in options["until"].items()})
        return reading(topic, cursor, **options)

    monkeypatch.setattr(takeovers, "_LOOKED_AT", 1)
    async with Worker(log, [Echo], home=tmp_path) as worker:
        await eventually(lambda: len(worker.tenures()) == 4)
        monkeypatch.setattr(log, "read", counted)
        assert await takeovers.takeover_lines(log, [one.context for one in worker.tenures()]) == []
    assert read
    assert all(count <= 1 for looked in read for count in looked.values())


async def test_heartbeats_that_retention_removes_meanwhile_are_as_if_never_there(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await at_work(log, tmp_path, Echo, [])
    topic, beginning = log.topology.heartbeat, log.beginning
    assert await last_heartbeats(log)

    async def removed_after(name: str) -> dict[int, int]:
        firsts = await beginning(name)
        await log.truncate(name, await log.end(name))
        return firsts

    monkeypatch.setattr(log, "beginning", removed_after)
    assert await last_heartbeats(log) == []
    assert await beginning(topic) == await log.end(topic)


def test_partitions_are_named_in_ranges() -> None:
    assert ranges([0, 1, 2, 4, 7, 8]) == "0-2, 4, 7-8"
