"""A journal record that is wrong stops its partition, says where it lies, and stops no other partition."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.client.operate.doctor import Finding, examine
from noesium_stream.log import open_log
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.port import Header
from noesium_stream.log.prepare import Prepared
from noesium_stream.log.topics import partition_of
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S, eventually
from tests.support.stores import inject
from tests.unit.worker.test_worker_faults import quick, sample

TYPE = ("ce_type", b"run.started")
ID = ("ce_id", b"0190b5a0-0000-7000-8000-000000000000")
WRONG: dict[str, tuple[Header, ...]] = {
    "no number": (TYPE, ID, (SEQUENCE, b"abc")),
    "a number that is too long": (TYPE, ID, (SEQUENCE, b"9" * 5_000)),
    "a gap": (TYPE, ID, (SEQUENCE, b"7")),
    "a number that is no UTF-8": (TYPE, ID, (SEQUENCE, b"\xff\xfe")),
    "an id that is no UTF-8": (TYPE, ("ce_id", b"\xff\xfe"), (SEQUENCE, b"0")),
    "a source that is no place": (TYPE, ID, ("noesium_source", b"x")),
    "garbage": (),
}


async def told_of(client: Client, what: str) -> list[Finding]:
    """What the doctor says about a partition."""
    return [one async for one in examine(client) if one.level == "problem" and what in one.what]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_journal_record_stops_its_partition_alone(wrong: str, tmp_path: Path) -> None:
    log = await open_log("memory://?partitions=2")
    journal, inbox = log.topology.journal("sample"), log.topology.inbox("sample")
    await log.ensure_topics([log.topology.spec(journal), log.topology.spec(inbox)])
    await inject(log, Prepared(journal, 0, "k", "", WRONG[wrong], b"\xc3\x01garbage\xff"))
    lines: list[str] = []
    stopped = asyncio.Event()

    def progress(line: str) -> None:
        lines.append(line)
        if "is stopped" in line:
            stopped.set()

    async with (
        asyncio.timeout(PATIENCE_S),
        Worker(log, [sample(quick)], home=tmp_path, progress=progress),
        Client(log) as client,
    ):
        await stopped.wait()
        await eventually(lambda: told_of(client, "is stopped at"))
        (finding,) = await told_of(client, "is stopped at")
        (place,) = [one for one in await client.workers() if one.stopped is not None]
        assert (place.partition, place.epoch) == (0, None)
        assert f"{place.stopped}" in finding.what
        assert f"{journal}/0@0" in finding.what
        run = await client.start("sample", {"quick": True})
        while partition_of(run.id, 2) == 0:
            run = await client.start("sample", {"quick": True})
        assert (await run.result(timeout=PATIENCE_S))["done"]
        assert run.id in [info.run_id for info in await client.list_runs()], "listings pass it over"
        assert await client.approvals() == await client.unresolved_effects() == []
    await log.close()
    (line,) = [line for line in lines if "is stopped" in line]
    assert f"{journal}/0@0" in line
    assert "restore it" in line or wrong == "garbage"
    assert "start the worker again" in line
    assert "\n" not in line


@pytest.mark.parametrize("wrong", WRONG)
async def test_the_doctor_finds_a_wrong_journal_record_before_any_worker(wrong: str) -> None:
    log = await open_log("memory://?partitions=2")
    journal, inbox = log.topology.journal("sample"), log.topology.inbox("sample")
    await log.ensure_topics([log.topology.spec(journal), log.topology.spec(inbox)])
    await inject(log, Prepared(journal, 0, "k", "", WRONG[wrong], b"\xc3\x01garbage\xff"))
    async with Client(log) as client:
        while partition_of((run := await client.start("sample", {})).id, 2) == 0:
            pass
        (finding,) = await told_of(client, "cannot be taken by a worker")
        assert f"{journal}/0@0" in finding.what
        (finding,) = await told_of(client, f"{inbox}/1 has no owner: up to")
        assert run.id
    await log.close()
