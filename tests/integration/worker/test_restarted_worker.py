"""A worker that is started again after a `kill -9` does not wait for the session of the dead one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.processes import Program
from tests.support.reading import PATIENCE_S, stored

PAUSING = "tests.support.pausing"
SESSION_S = 300
"""Longer than any test waits; librdkafka takes no more."""


@pytest.fixture(params=["sqlite", "kafka"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    """A log that several processes share, with one partition."""
    url = f"sqlite:///{tmp_path}/log.db?partitions=1"
    if request.param == "kafka":
        url = f"{request.getfixturevalue('kafka').url('r' + secrets.token_hex(4))}&partitions=1"
    log = await open_log(url)
    yield log
    await log.close()


@pytest.fixture
async def programs() -> AsyncIterator[list[Program]]:
    """Workers of the test; killed at its end."""
    programs: list[Program] = []
    yield programs
    await asyncio.gather(*(program.kill() for program in programs))


async def test_a_worker_with_the_home_of_a_killed_one_takes_its_partitions_at_once(
    log: EventLog, tmp_path: Path, programs: list[Program]
) -> None:
    assert SESSION_S > 2 * PATIENCE_S
    async with Client(log) as client:
        for _ in range(3):
            worker = await Program.start(PAUSING, log.url, tmp_path, "home", "never", SESSION_S)
            programs.append(worker)
            run = await client.start("payer", {})
            assert (await run.result(timeout=PATIENCE_S))["paid_by"] == "home"
            assert len([*(tmp_path / "home" / "members").iterdir()]) == 1, "of the one that lives"
            await worker.kill()
    events = [record.envelope for record in await stored(log, log.topology.journal("payer"))]
    owners = [event.producer.instance_id for event in events if event.event_type == "partition.acquired"]
    assert len(set(owners)) == 3
    assert len((tmp_path / "ledger").read_text().splitlines()) == 3
