"""Taking over the partition of a worker that was killed, on a machine that has its snapshot.

The runs that wait are real ones. Those that have ended are written in bulk: the records of one, as a worker
wrote them, again and again with new ids of runs and events. A worker reads it all once, which makes the
snapshot; then it is killed, and the next one, which has joined the group before, is given the partition.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import islice

from confluent_kafka import Producer
from uuid_utils import uuid7

from noesium_stream.log.port import EventLog
from noesium_stream.worker.runs.eviction import CROWD
from tests.bench.by_hand.bare import Ready, produce_bare
from tests.bench.by_hand.produce import producer
from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.worker_place import Seen, WorkerProcess, commands, worker, working
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

AGENT = "clerk"
_BATCH = 2_000
_TOPIC_OF_EVENTS = "approval.requested"


async def measure_takeover(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Seconds from the assignment by the group to the start of a run that was asked for meanwhile."""
    progress(f"takeover: {settings.finished:,} runs that have ended, {settings.open_runs:,} that wait")
    home = settings.folder / f"takeover-{secrets.token_hex(4)}"
    owned: list[float] = []
    begun: list[float] = []
    group: list[float] = []
    read: list[float] = []
    async with kafka_log(kafka, "&partitions=1") as log:
        await _fill(kafka, log, settings)
        async with AsyncExitStack() as stack:
            owner = await stack.enter_async_context(worker(log.url, AGENT, home))
            await owner.said(lambda line: "owned" in line)
            await _at_rest(owner, settings.open_runs)
            seen = await stack.enter_async_context(Seen(log, AGENT, ("run.started",)))
            for _ in range(settings.repetitions):
                heir = await stack.enter_async_context(worker(log.url, AGENT, home))
                killed = time.monotonic()
                await owner.kill()
                [command] = commands(AGENT, [{"order": "trivial"}])
                await log.append([command])
                started = ("run.started", command.partition_key or "")
                given = (await heir.said(lambda line: "assigned" in line))["at_s"]
                took = await heir.said(lambda line: "owned" in line)
                owned.append(took["at_s"] - given)
                read.append(took["read"])
                await seen.until(lambda: started in seen.at_s)  # noqa: B023
                begun.append(seen.at_s[started] - given)
                group.append(given - killed)
                progress(
                    f"  the group {group[-1]:.2f} s, owned {owned[-1]:.3f}, begun {begun[-1]:.3f}, "
                    f"{read[-1]:,.0f} records read"
                )
                await _at_rest(heir, settings.open_runs)
                owner = heir
        journal = float((await log.end(log.topology.journal(AGENT)))[0])
    name = f"a dead owner's partition, {settings.finished:,} runs ended, {settings.open_runs:,} open"
    note = "From the assignment to the start of the first run that was asked for meanwhile, on the log."
    tail, whole = Side("the new owner reads", read), Side("offsets in it", [journal] * len(read))
    other = Side("from the kill to the assignment", group)
    ours, alone = Side("the first run begins", begun), Side("it is owned", owned)
    return [
        Figure("takeover", name, "s", ours, other, 1.0, at_least=False, absolute=True, note=note),
        Figure("takeover", name, "s", alone, other, at_least=False),
        Figure("takeover", f"{name}, its journal", "records", tail, whole, 0.02, at_least=False),
    ]


async def _at_rest(process: WorkerProcess, waiting: int) -> None:
    """Until nothing but these runs is open, those that are not loaded are known to rest, and the snapshot is
    written: a worker that reads a journal from its beginning has to look at each of them first.
    """
    await process.stands(open=waiting, rests=[waiting - CROWD], unwritten=0)


async def _fill(kafka: KafkaServer, log: EventLog, settings: WorkerSettings) -> None:
    """Let a worker make the runs that wait and one that has ended, then write copies of that in bulk."""
    home = settings.folder / f"takeover-{secrets.token_hex(4)}"
    ended, *waits = commands(AGENT, [{"order": "trivial"}, *[{"order": "book"}] * settings.open_runs])
    journal = log.topology.journal(AGENT)
    async with working(log, AGENT, home), Seen(log, AGENT, ("run.completed", _TOPIC_OF_EVENTS)) as seen:
        await log.append([ended, *waits])
        await seen.until(lambda: len(seen.at_s) == 1 + len(waits))
    ends = await log.end(journal)
    runs: dict[str, list[Ready]] = {}
    async for batch in log.read_batches(journal, {}, until=ends):
        for record in batch:
            ready = Ready(record.key, record.partition, list(record.headers), record.value)
            runs.setdefault(record.key, []).append(ready)
    records = _copies(runs[ended.partition_key or ""], settings.finished)
    await asyncio.to_thread(_write, producer(kafka.bootstrap, f"{journal}.bulk"), journal, records)


def _copies(records: Sequence[Ready], count: int) -> Iterator[Ready]:
    """The same run again and again, under other ids of the same length."""
    old = [records[0].key, *(_id_of(record) for record in records)]
    for _ in range(count):
        new = {before.encode(): str(uuid7()).encode() for before in old}
        for record in records:
            value = record.value
            headers = record.headers
            for before, after in new.items():
                value = value.replace(before, after)
            headers = [
                (name, new.get(content, content) if name == "ce_id" else content) for name, content in headers
            ]
            yield Ready(new[old[0].encode()].decode(), record.partition, headers, value)


def _id_of(record: Ready) -> str:
    return next(content.decode() for name, content in record.headers if name == "ce_id")


def _write(bulk: Producer, journal: str, records: Iterator[Ready]) -> None:
    while batch := list(islice(records, _BATCH)):
        produce_bare(bulk, journal, batch)
