"""`memory://`: shared by name, and reproducible under a seed."""

from __future__ import annotations

import asyncio

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import FencedError, TopicNotFoundError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from tests.support.events import catalogue, counted, outgoing
from tests.support.reading import numbers, stored


async def opened(url: str) -> EventLog:
    return await open_log(url, catalogue=catalogue(), clock=VirtualClock())


async def test_a_name_is_shared_and_the_nameless_are_private() -> None:
    one, same, other = (
        await opened("memory://shared"),
        await opened("memory://shared"),
        await opened("memory://"),
    )
    await one.append([counted(1, "k")])
    assert numbers(await stored(same, same.topology.events("demo"))) == [1]
    with pytest.raises(TopicNotFoundError):
        await other.end(other.topology.events("demo"))
    for log in (one, same, other):
        await log.close()
    again = await opened("memory://shared")
    with pytest.raises(TopicNotFoundError):
        await again.end(again.topology.events("demo"))
    await again.close()


async def race(seed: int) -> list[int]:
    """What a reader sees of five writers that run at once."""
    log = await opened(f"memory://?seed={seed}")
    inbox = log.topology.inbox("demo")
    await log.ensure_topics([log.topology.spec(inbox)])
    clock = VirtualClock()

    async def work(number: int) -> None:
        writer = await log.writer(f"w{number}")
        for n in range(3):
            await writer.commit(outgoing([counted(number * 10 + n, clock=clock)], inbox, 0))

    await asyncio.gather(*(work(number) for number in range(5)))
    seen = numbers(await stored(log, inbox))
    await log.close()
    return seen


async def test_a_seed_repeats_its_interleaving_and_others_differ() -> None:
    races = [await race(seed) for seed in range(12)]
    assert races == [await race(seed) for seed in range(12)]
    assert len({tuple(seen) for seen in races}) > 6
    assert all(sorted(seen) == sorted(races[0]) for seen in races)


async def test_under_some_seed_a_commit_is_acknowledged_before_it_can_be_read() -> None:
    behind = 0
    for seed in range(20):
        log = await opened(f"memory://?seed={seed}")
        inbox = log.topology.inbox("demo")
        await log.ensure_topics([log.topology.spec(inbox)])
        writer = await log.writer("w")
        await writer.commit(outgoing([counted(1)], inbox, 0))
        end = await log.end(inbox)
        behind += end[0] < 2
        await log.writer("w")
        assert (await log.end(inbox))[0] == 2, "a new writer of the id waits for the markers"
        assert numbers(await stored(log, inbox)) == [1]
        await log.close()
    assert 0 < behind < 20


async def test_control_markers_use_offsets() -> None:
    log = await opened("memory://")
    inbox = log.topology.inbox("demo")
    await log.ensure_topics([log.topology.spec(inbox)])
    writer = await log.writer("w")
    [first] = await writer.commit(outgoing([counted(1)], inbox, 0))
    [second] = await writer.commit(outgoing([counted(2)], inbox, 0))
    assert (first.offset, second.offset) == (0, 2)
    assert (await log.end(inbox))[0] == 4
    await log.close()


async def test_a_fenced_writer_writes_into_the_void_and_learns_of_it_at_its_commit() -> None:
    log = await opened("memory://")
    inbox = log.topology.inbox("demo")
    await log.ensure_topics([log.topology.spec(inbox)])
    older = await log.writer("w")
    transaction = await older.begin()
    await log.writer("w")
    await transaction.write(outgoing([counted(1)], inbox, 0))
    with pytest.raises(FencedError):
        await transaction.commit()
    assert (await log.end(inbox))[0] == 0
    await log.close()
