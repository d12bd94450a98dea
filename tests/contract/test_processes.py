"""Several processes on one log, and what a SIGKILL leaves behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict

import pytest

from noesium_stream.log.headers import COMMIT
from noesium_stream.log.port import EventLog, TopicPartition
from tests.support.backends import PARTITIONS, Backend
from tests.support.events import counted
from tests.support.processes import Program
from tests.support.reading import GroupMember, Tail, eventually, numbers, stored

APPENDER = "tests.support.appender"
KILLS = 6

pytestmark = pytest.mark.needs("several_processes")


async def test_processes_append_between_each_other_and_lose_nothing(backend: Backend) -> None:
    log = await backend.open()
    topic = log.topology.events("demo")
    await log.ensure_topics([log.topology.spec(topic)])
    async with Tail(log, topic) as tail:
        programs = [
            await Program.start(APPENDER, "append", backend.url, topic, f"key-{number}", number * 1000, 150)
            for number in range(2)
        ]
        await asyncio.gather(*(program.line("ready") for program in programs))
        for n in range(2000, 2150):
            await log.append([counted(n, "key-2")])
        for program in programs:
            await program.end()
        records = await tail.has(450)
    assert len(records) == 450
    for number in range(3):
        own = numbers([record for record in records if record.key == f"key-{number}"])
        assert own == list(range(number * 1000, number * 1000 + 150))
    assert [(r.partition, r.offset) for r in await stored(log, topic)] == sorted(
        (r.partition, r.offset) for r in records
    )


async def test_a_writer_in_another_process_is_fenced_by_a_newer_one_here(backend: Backend) -> None:
    log = await backend.open()
    journal = log.topology.journal("tester")
    await log.ensure_topics([log.topology.spec(journal)])
    program = await Program.start(APPENDER, "commit", backend.url, journal, 0, 0, 1_000_000, 1)
    await program.line("3")
    await log.writer("crash")
    fold = numbers(await stored(log, journal))
    # Kafka may answer a commit that the fence met on its way with "unknown error": then nobody knows.
    with pytest.raises(AssertionError, match=r"FencedError|CommitUnknownError") as ended:
        await program.end()
    acknowledged = [int(line) for line in program.lines if line != "ready"]
    unknown = "CommitUnknownError" in str(ended.value)
    assert numbers(await stored(log, journal)) == fold == list(range(len(fold)))
    assert len(acknowledged) <= len(fold) <= len(acknowledged) + unknown


@pytest.mark.parametrize("seed", range(KILLS))
async def test_after_a_kill_every_acknowledged_commit_is_there_and_each_is_whole_or_absent(
    backend: Backend, seed: int
) -> None:
    batch = 1 + seed % 3 * 7
    chance = random.Random(seed)
    log = await backend.open()
    journal, inbox = log.topology.journal("tester"), log.topology.inbox("tester")
    await log.ensure_topics([log.topology.spec(journal), log.topology.spec(inbox)])
    expected = 0
    acknowledged: set[int] = set()
    for _ in range(3):
        program = await Program.start(
            APPENDER, "commit", backend.url, journal, 1, expected, 1_000_000, batch, inbox
        )
        await program.line("ready")
        pause_s = chance.uniform(0.0, 0.25)
        print(f"seed {seed}: killed after {pause_s:.4f} s")
        await asyncio.sleep(pause_s)
        await program.kill()
        acknowledged |= {int(line) for line in program.lines if line != "ready"}
        await log.writer("crash")
        whole = await whole_commits(log, journal, batch)
        assert whole == await whole_commits(log, inbox, batch)
        assert whole == list(range(len(whole)))
        assert acknowledged <= set(whole)
        assert len(whole) <= len(acknowledged) + 3, "at most one more for each kill than was acknowledged"
        expected = len(whole)
    again = await backend.open()
    assert await whole_commits(again, journal, batch) == whole


async def whole_commits(log: EventLog, topic: str, batch: int) -> list[int]:
    """The numbers of the commits in `topic`, in order; fails if one is not whole."""
    parts: dict[int, list[str]] = defaultdict(list)
    commits: Counter[bytes | None] = Counter()
    for record in await stored(log, topic):
        payload = record.envelope.payload
        parts[payload["n"]].append(payload["text"].split()[0])
        commits[record.header(COMMIT).rpartition(b":")[0].rpartition(b":")[0]] += 1  # type: ignore[union-attr]
    assert all(part == [f"{i}/{batch}" for i in range(batch)] for part in parts.values())
    assert set(commits.values()) <= {batch}
    return list(parts)


async def test_a_killed_members_partitions_go_to_the_others(backend: Backend) -> None:
    log = await backend.open()
    topic = log.topology.events("demo")
    await log.append([counted(n, f"k{n}") for n in range(40)])
    program = await Program.start(APPENDER, "member", backend.url, topic, "group")
    await program.line("assigned " + " ".join(str(number) for number in range(PARTITIONS)))
    member = GroupMember()
    subscription = await log.subscribe("group", [topic], member.handle, on_assigned=member.on_assigned)
    await eventually(lambda: len(subscription.assignment) == PARTITIONS // 2)
    await program.kill()
    await log.append([counted(n, f"k{n}") for n in range(40, 80)])
    everything = frozenset(TopicPartition(topic, number) for number in range(PARTITIONS))
    await eventually(lambda: subscription.assignment == everything)
    handled = {int(line.split()[1]) for line in program.lines if line.startswith("record")}
    await eventually(lambda: handled | set(numbers(member.records)) == set(range(80)))
