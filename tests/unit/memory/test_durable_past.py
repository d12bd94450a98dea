"""Memory of the past, by time and by position; what two runs saw; expiry, and what contradicts what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client.operate.memory_diff import memory_diff
from noesium_stream.client.operate.replay import recording
from noesium_stream.clock import VirtualClock, to_datetime
from noesium_stream.errors import AgentMemoryError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.log.port import Position
from noesium_stream.memory import MemoryFilter, MemoryManager, memory_of
from noesium_stream.testing import Rehearsal
from tests.unit.memory.test_durable import Clerk


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[MemoryManager]:
    clock = VirtualClock()
    log = await open_log("memory://", clock=clock)
    memory = memory_of(log, tmp_path, AgentRef("p", "client", "local", "i"), "user:ada", clock=clock)
    yield memory
    memory.close()
    await log.close()


def tick(memory: MemoryManager, seconds: float = 1) -> None:
    memory.durable.clock.advance(seconds)  # type: ignore[attr-defined]


async def positions(memory: MemoryManager) -> list[Position]:
    log = memory.durable.log
    topic = log.topology.events("memory")
    records = [one async for one in log.read(topic, {}, until=await log.end(topic))]
    return [Position(topic, one.partition, one.offset) for one in records]


async def test_as_of_a_position_is_what_was_known_when_its_event_was_the_last_one(
    memory: MemoryManager,
) -> None:
    for city in ("Paris", "Rome", "Oslo"):
        await memory.write("city", city, source=f"mail:{city}")
        tick(memory)
    await memory.retract("mail:Oslo")
    places = await positions(memory)
    told = [[item.value for item in await memory.as_of(place, "city")] for place in places]
    assert sorted(told) == [["Oslo"], ["Paris"], ["Rome"], ["Rome"]]
    assert await memory.recall("city") == "Rome"


async def test_as_of_a_position_tells_events_of_one_millisecond_apart(memory: MemoryManager) -> None:
    for number in range(5):
        await memory.write(f"k{number}", number)
    counts = [len(await memory.as_of(place)) for place in await positions(memory)]
    assert sorted(counts) == [1, 2, 3, 4, 5]
    assert len(await memory.as_of(to_datetime(memory.durable.clock.now_ms()))) == 5


@pytest.mark.parametrize(
    "place",
    [
        Position("noesium.events.memory", 0, 10**15),
        Position("noesium.events.memory", 99, 0),
        Position("noesium.events.nothing", 0, 0),
        Position("noesium.events.memory", 0, -1),
    ],
)
async def test_a_position_without_a_record_is_refused(memory: MemoryManager, place: Position) -> None:
    await memory.write("k", 1)
    with pytest.raises(AgentMemoryError, match="There is no record at"):
        await memory.as_of(place)


async def test_contradictions_stand_side_by_side_until_a_write_replaces_both(memory: MemoryManager) -> None:
    first = await memory.write("tier", "silver")
    tick(memory)
    await memory.write("tier", "gold", replaces=[first], said_by="ada")
    tick(memory)
    await memory.write("tier", "bronze", replaces=[first], said_by="bo")
    item = await memory.durable.recall("tier")
    assert item is not None
    assert (item.value, [one.value for one in item.contradictions]) == ("bronze", ["gold"])
    [asked] = await memory.query(MemoryFilter(prefix="tier"))
    assert asked == item
    await memory.durable.rebuild()
    assert await memory.durable.recall("tier") == item
    tick(memory)
    await memory.write("tier", "gold", replaces=[item, *item.contradictions], said_by="the manager")
    decided = await memory.durable.recall("tier")
    assert decided is not None
    assert (decided.value, decided.contradictions) == ("gold", ())


async def test_what_expires_is_not_shown_from_its_moment_on_and_was_known_before(
    memory: MemoryManager,
) -> None:
    clock = memory.durable.clock
    until = to_datetime(clock.now_ms()) + timedelta(seconds=60)
    await memory.write("offer", "ten percent", expires=until)
    await memory.write("city", "Oslo")
    tick(memory, 59.999)
    assert await memory.recall("offer") == "ten percent"
    assert [one.value for one in await memory.query()] == ["Oslo", "ten percent"]
    tick(memory, 0.001)
    assert await memory.recall("offer") is None
    assert [one.value for one in await memory.query()] == ["Oslo"]
    assert [one.value for one in await memory.as_of(until - timedelta(seconds=1), "offer")] == ["ten percent"]
    assert await memory.as_of(until, "offer") == []
    await memory.durable.rebuild()
    assert await memory.recall("offer") is None


async def test_two_runs_differ_in_what_they_saw_and_wrote() -> None:
    async with Rehearsal(Clerk) as rehearsal:
        runs: list[Any] = []
        for name in ("Bo", "Bea"):
            runs.append(await rehearsal.start({"name": name}))
            await runs[-1].result()
            rehearsal.clock.advance(1)
        first, second = [await recording(run) for run in runs]
        assert memory_diff(first, first) == []
        found = memory_diff(first, second)
    assert {(one.kind, one.scope, one.key) for one in found} >= {
        ("wrote", "agent:clerk", "name"),
        ("wrote", "run", "before"),
        ("saw", "agent:clerk", "name"),
    }
    [wrote] = [one for one in found if one[:3] == ("wrote", "agent:clerk", "name")]
    assert (wrote.left, wrote.right) == (["Bo"], ["Bea"])
    assert not [one for one in found if one.key == "seen" and one.kind == "wrote"]
