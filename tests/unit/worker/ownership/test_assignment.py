"""A partition that cannot be taken at once, because somebody else takes it too, is taken by and by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from noesium_stream.client import Client, Run
from noesium_stream.errors import CommitUnknownError, FencedError, LogForbiddenError, LogUnavailableError
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from noesium_stream.worker.ownership import owner as ownership
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.ownership.owner import PartitionOwner
from tests.support.reading import PATIENCE_S
from tests.support.sample_agents import Echo


@pytest.mark.parametrize(
    "error",
    [FencedError("told to"), CommitUnknownError("told to"), LogUnavailableError("told to")],
    ids=["fenced", "unknown", "absent"],
)
async def test_a_worker_that_does_not_get_a_partition_at_once_lives_on(
    tmp_path: Path, error: Exception
) -> None:
    refused: set[str] = set()

    async def commit(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        first = outgoing[0]
        if first.envelope.event_type == "partition.acquired" and first.topic not in refused:
            refused.add(first.topic)
            raise error
        return await commit(outgoing)

    async with asyncio.timeout(PATIENCE_S):
        inner = await open_log("memory://?partitions=1")
        log = cast(EventLog, HookedLog(inner, commit))
        async with Client(inner) as client:
            # One lies in the inbox already, the other comes while the partition is being taken.
            before = await client.start("echo", {"text": "before"})
            async with Worker(log, [Echo], home=tmp_path):
                after = await client.start("echo", {"text": "after"})
                assert await before.result() == {"reply": "BEFORE"}
                assert await after.result() == {"reply": "AFTER"}
        assert refused
        await inner.close()


@pytest.mark.parametrize("event_type", ["partition.acquired", "run.started"])
async def test_what_the_log_will_never_do_ends_the_worker(tmp_path: Path, event_type: str) -> None:
    async def commit(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        if any(record.envelope.event_type == event_type for record in outgoing):
            raise LogForbiddenError("the broker does not allow it")
        return await commit(outgoing)

    inner = await open_log("memory://?partitions=1")
    worker = Worker(cast(EventLog, HookedLog(inner, commit)), [Echo], home=tmp_path)
    async with asyncio.timeout(PATIENCE_S), Client(inner) as client:
        await client.start("echo", {"text": "hello"})
        async with worker:
            with pytest.raises(LogForbiddenError):
                await worker.wait()
    await inner.close()


async def start_in(number: int, client: Client, text: str) -> Run:
    while True:
        run = await client.start("echo", {"text": text})
        if partition_of(run.id, 2) == number:
            return run


async def test_a_partition_that_is_not_taken_for_long_holds_up_no_other(tmp_path: Path) -> None:
    away, refused = asyncio.Event(), asyncio.Event()
    away.set()

    async def commit(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        first = outgoing[0]
        if first.envelope.event_type == "partition.acquired" and first.partition == 0 and away.is_set():
            refused.set()
            raise LogUnavailableError("told to")
        return await commit(outgoing)

    inner = await open_log("memory://?partitions=2")
    worker = Worker(cast(EventLog, HookedLog(inner, commit)), [Echo], home=tmp_path)
    async with asyncio.timeout(PATIENCE_S), Client(inner) as client, worker:
        await refused.wait()
        held = await start_in(0, client, "held")
        other = await start_in(1, client, "other")
        assert await other.result() == {"reply": "OTHER"}
        away.clear()
        assert await held.result() == {"reply": "HELD"}
    await inner.close()


async def test_what_the_group_hands_over_before_it_reads_where_the_owner_stands_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's offset is advice, and may be ahead of what its last owner has dealt with."""
    inner = await open_log("memory://?partitions=2")
    inbox = inner.topology.inbox("echo")
    await inner.ensure_topics([inner.topology.spec(inbox)])
    asked, handed_over = asyncio.Event(), asyncio.Event()
    start_at, accept, refused = Assignment.start_at, PartitionOwner.accept, list[str]()

    async def starting(assignment: Assignment, offset: int) -> None:
        asked.set()
        await handed_over.wait()
        await start_at(assignment, offset)

    def accepting(owner: PartitionOwner[Any], records: Sequence[Record]) -> Any:
        if owner.context.partition == 0 and asked.is_set():
            handed_over.set()
        return accept(owner, records)

    async def commit(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        first = outgoing[0]
        if first.envelope.event_type == "partition.acquired" and first.partition == 0 and not refused:
            refused.append(first.topic)
            raise FencedError("told to")
        return await commit(outgoing)

    monkeypatch.setattr(Assignment, "start_at", starting)
    monkeypatch.setattr(PartitionOwner, "accept", accepting)
    monkeypatch.setattr(ownership, "TAKING_S", 0.01)
    async with asyncio.timeout(PATIENCE_S), Client(inner) as client:
        before = await start_in(0, client, "before")
        read = asyncio.Event()

        async def skip(records: Sequence[Record]) -> None:
            if any(record.partition == 0 for record in records):
                read.set()

        member = await inner.subscribe(inner.topology.workers("echo"), [inbox], skip)
        await read.wait()
        await member.close()
        async with Worker(cast(EventLog, HookedLog(inner, commit)), [Echo], home=tmp_path):
            await asked.wait()
            after = await start_in(0, client, "after")
            assert await after.result() == {"reply": "AFTER"}
            assert await before.result() == {"reply": "BEFORE"}
    assert refused
    await inner.close()
