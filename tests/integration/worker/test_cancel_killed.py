"""A tree of thirty-one runs in two worker processes is cancelled, and one of them is killed meanwhile."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.kafka import KafkaServer
from tests.support.processes import Program
from tests.support.reading import eventually, stored
from tests.support.tree_agents import AGENTS
from tests.support.trees import at_work, counts, endings, thirty

NAMES = [f"tests.support.tree_agents:{agent.__name__}" for agent in AGENTS]
RUNS = 31


@asynccontextmanager
async def two_workers(log: EventLog, url: str) -> AsyncIterator[Sequence[Program]]:
    """Two processes, each with a partition of each agent type."""
    programs = [await Program.start("noesium_stream.cli", "worker", *NAMES, "--log", url) for _ in range(2)]

    async def shared() -> bool:
        groups = [log.topology.workers(agent.agent_type) for agent in AGENTS]
        shares = [await log.members(group) for group in groups]
        return all(len(share) == 2 and all(one.partitions for one in share) for share in shares)

    try:
        await eventually(shared)
        yield programs
    finally:
        for program in programs:
            await program.kill()


async def cancelled(log: EventLog) -> int:
    """How many runs have been told to end, by their own journals."""
    found = 0
    for agent in AGENTS:
        journal = log.topology.journal(agent.agent_type)
        records = await stored(log, journal, types=("run.cancel.requested",))
        found += sum(record.envelope.payload["run_id"] == record.key for record in records)
    return found


@pytest.mark.parametrize("kind", ["sqlite", "kafka"])
async def test_each_run_of_a_tree_ends_once_though_a_worker_is_killed_while_it_is_cancelled(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOESIUM_HOME", str(tmp_path / "home"))
    url = f"sqlite:///{tmp_path}/log.db?partitions=2"
    if kind == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        url = f"{kafka.url('c' + secrets.token_hex(4))}&partitions=2"
    log = await open_log(url)
    for agent in AGENTS:
        topology = log.topology
        names = topology.inbox(agent.agent_type), topology.journal(agent.agent_type)
        await log.ensure_topics([topology.spec(name) for name in names])
    async with two_workers(log, url) as (killed, _), Client(log) as client:
        run = await client.start("root", thirty())
        await at_work(log, 25)
        cancelling = asyncio.create_task(run.cancel_tree("enough"))
        await eventually(lambda: cancelled(log))
        await killed.kill()
        tree = await cancelling
    assert (tree.ended, len(tree.runs)) == (True, RUNS)
    assert {one.status for one in tree.runs} == {"cancelled"}
    assert counts(await endings(log)) == {("run.cancelled",): RUNS}
    await log.close()
