"""A worker that stands still for longer than its session has lost what it owned, and behaves like that."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, process_of
from tests.support.processes import Program, is_stopped
from tests.support.reading import PATIENCE_S, eventually, stored

PAUSING = "tests.support.pausing"


@pytest.fixture(params=["sqlite", "kafka"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[EventLog]:
    """A log that several processes share, with one partition."""
    url = f"sqlite:///{tmp_path}/log.db?partitions=1"
    if request.param == "kafka":
        url = f"{request.getfixturevalue('kafka').url('p' + secrets.token_hex(4))}&partitions=1"
    log = await open_log(url)
    yield log
    await log.close()


@pytest.fixture
async def programs() -> AsyncIterator[list[Program]]:
    """Workers of the test; killed at its end, also those that stand still."""
    programs: list[Program] = []
    yield programs
    await asyncio.gather(*(program.kill() for program in programs))


async def dismiss(log: EventLog, program: Program) -> None:
    """Tell the group of a death, which it would hear of when a long session has ended."""
    group = log.topology.workers("payer")
    shares = await log.members(group)
    await log.dismiss(
        group, {share.member for share in shares if process_of(share.member).endswith(f"/{program.pid}")}
    )


@pytest.mark.parametrize("when", ["intent", "result"])
async def test_who_takes_over_from_a_paused_worker_wins_and_the_paused_one_neither_commits_nor_calls(
    log: EventLog, tmp_path: Path, programs: list[Program], when: str
) -> None:
    ledger, journal = tmp_path / "ledger", log.topology.journal("payer")
    paused = await Program.start(PAUSING, log.url, tmp_path, "paused", when)
    programs.append(paused)
    await paused.line("ready")
    async with Client(log) as client:
        run = await client.start("payer", {})
        await paused.line(f"stopped: {when}")
        await eventually(lambda: is_stopped(paused.pid))
        assert (ledger.read_text().split()[::2] if ledger.exists() else []) == ["paused"] * (when == "result")

        next_one = await Program.start(PAUSING, log.url, tmp_path, "next", "never", PATIENCE_S)
        programs.append(next_one)
        await next_one.line("ready")
        await eventually(run.unresolved_effects)
        [unknown] = await run.unresolved_effects()
        if when == "intent":
            await run.resolve_effect(unknown.effect_id, "retry")
        else:
            await run.resolve_effect(unknown.effect_id, "result", "paused")
        paid_by = "next" if when == "intent" else "paused"
        assert (await run.result(timeout=PATIENCE_S))["paid_by"] == paid_by

        os.kill(paused.pid, signal.SIGCONT)
        await paused.line("let go")
        again = await client.start("payer", {})
        assert (await again.result(timeout=PATIENCE_S))["paid_by"] == "next"

    first, second = (line.split() for line in ledger.read_text().splitlines())
    assert [first[0], second[0]] == [paid_by, "next"]
    assert first[1] != second[1], "no effect was performed twice"
    events = [record.envelope for record in await stored(log, journal)]
    owners = [event.producer.instance_id for event in events if event.event_type == "partition.acquired"]
    assert len(set(owners)) == 2
    acquired = [event.producer.instance_id == owners[-1] for event in events]
    last = events[acquired.index(True) :]
    from_agent = [event for event in last if event.producer.agent_type == "payer"]
    assert {event.producer.instance_id for event in from_agent} == {owners[-1]}
    for one in (run, again):
        types = [event.event_type async for event in one.events(follow=False)]
        assert types.count("kernel.node.completed") == types.count("run.completed") == 1
    assert not is_stopped(paused.pid)


async def test_one_that_is_assigned_a_partition_and_initialises_late_leaves_it_to_the_one_who_has_it(
    log: EventLog, tmp_path: Path, programs: list[Program]
) -> None:
    journal = log.topology.journal("payer")
    late = await Program.start(PAUSING, log.url, tmp_path, "late", "acquire")
    programs.append(late)
    await late.line("stopped: acquire")
    await eventually(lambda: is_stopped(late.pid))

    holder = await Program.start(PAUSING, log.url, tmp_path, "holder", "never", PATIENCE_S)
    programs.append(holder)
    await holder.line("ready")
    async with Client(log) as client:
        first = await client.start("payer", {})
        assert (await first.result(timeout=PATIENCE_S))["paid_by"] == "holder"
        os.kill(late.pid, signal.SIGCONT)
        await late.line("let go")
        # It may have fenced the holder, who hears of it now, and takes the partition again.
        second = await client.start("payer", {})
        assert (await second.result(timeout=PATIENCE_S))["paid_by"] == "holder"

        events = [record.envelope for record in await stored(log, journal)]
        owners = {event.producer.instance_id for event in events if event.event_type == "partition.acquired"}
        assert len(owners) == 1, "the late one never got past its first commit"
        await holder.kill()
        await dismiss(log, holder)
        third = await client.start("payer", {})
        assert (await third.result(timeout=PATIENCE_S))["paid_by"] == "late", (
            "it is a member like any other again"
        )
