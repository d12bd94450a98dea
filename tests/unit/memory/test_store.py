"""The store: the same after cuts, restarts and rebuilds; damaged, foreign and unreadable things."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import LogTruncatedError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import MemoryWritten, SubjectErased
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.memory import MemoryManager, memory_of
from noesium_stream.memory.store import MemoryStore, store_path

SCOPES = [f"user:{name}" for name in ("ada", "bo", "cy", "di")]
TOPIC = "noesium.events.memory"


def client(log: EventLog, folder: Path, clock: VirtualClock, name: str = "p") -> MemoryManager:
    return memory_of(log, folder, AgentRef(name, "client", "local", "i"), SCOPES[0], clock=clock)


def content(store: MemoryStore) -> list[Any]:
    with store.reading() as db:
        facts = db.execute("SELECT id, scope, key, at_ms, value, dead, gone, live FROM fact ORDER BY id")
        return [*facts, *db.execute("SELECT * FROM edge ORDER BY 1, 2"), *db.execute("SELECT * FROM source")]


async def change(memory: MemoryManager, chance: random.Random, known: list[str]) -> None:
    scoped, key = memory.durable.at(chance.choice(SCOPES)), chance.choice("abc")
    match chance.randrange(6):
        case 0:
            await scoped.delete(key)
        case 1:
            await scoped.retract(
                chance.choice(["mail:1", "mail:2", f"memory:{chance.choice(known or ['x'])}"])
            )
        case 2:
            await scoped.restore(chance.choice(["mail:1", "mail:2"]))
        case 3 if known:
            known.append(await scoped.write(key, 1, replaces=chance.sample(known, min(2, len(known)))))
        case 4 if known:
            known.append(await scoped.write(key, 2, sources=[f"memory:{chance.choice(known)}"]))
        case _:
            known.append(await scoped.write(key, 3, source=chance.choice(["mail:1", "mail:2"])))


@pytest.mark.parametrize("seed", range(12))
async def test_it_is_the_same_after_cuts_restarts_and_a_rebuild(seed: int, tmp_path: Path) -> None:
    chance, clock = random.Random(seed), VirtualClock(seed=seed)
    log = await open_log("memory://", clock=clock)
    memory, known = client(log, tmp_path / "a", clock), list[str]()
    followed = MemoryStore(tmp_path / "followed.db")
    for _ in range(60):
        clock.advance(chance.choice([0, 0, 0.001]))
        await change(memory, chance, known)
        if chance.random() < 0.3:
            await followed.catch_up(log)
        if chance.random() < 0.1:
            followed.close()
    await followed.catch_up(log)
    fresh = MemoryStore(tmp_path / "fresh.db")
    await fresh.catch_up(log)
    found = content(followed)
    assert found == content(fresh)
    await followed.rebuild(log)
    assert found == content(followed)
    await log.close()


async def test_two_that_use_one_file_at_the_same_time_fold_each_event_once(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await open_log("memory://", clock=clock)
    one, other = MemoryStore(tmp_path / "m.db"), MemoryStore(tmp_path / "m.db")
    memory = client(log, tmp_path / "a", clock)
    for number in range(30):
        await memory.write("k", number)
        await asyncio.gather(one.catch_up(log), other.catch_up(log), one.catch_up(log))
    assert len(one.facts("WHERE live = 1")) == 1
    assert len(other.facts("")) == 30
    await log.close()


async def test_a_damaged_file_and_one_of_another_version_are_folded_again(tmp_path: Path) -> None:
    clock, said = VirtualClock(), list[str]()
    log = await open_log("memory://", clock=clock)
    memory = client(log, tmp_path, clock)
    await memory.write("k", "v")
    path = store_path(tmp_path, log.url)
    for spoil in (_overwrite, _other_version):
        store = MemoryStore(path, said.append)
        await store.catch_up(log)
        store.close()
        spoil(path)
        again = MemoryStore(path, said.append)
        await again.catch_up(log)
        assert [fact.value for fact in again.facts("WHERE live = 1")] == ["v"]
        again.close()
    assert len(said) == 2
    assert "folded again" in said[0]
    await log.close()


def _overwrite(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def _other_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE about SET version = 99")


async def test_the_memory_of_another_log_is_discarded_and_a_loss_is_told(tmp_path: Path) -> None:
    clock, said = VirtualClock(), list[str]()
    first, second = await open_log("memory://", clock=clock), await open_log("memory://", clock=clock)
    store = MemoryStore(tmp_path / "m.db", said.append)
    for log, value in ((first, "one"), (second, "two")):
        await client(log, tmp_path / value, clock).write("k", value)
        await store.catch_up(log)
        assert [fact.value for fact in store.facts("WHERE live = 1")] == [value]
    assert len(said) == 1
    await client(second, tmp_path / "two", clock).write("k", "three")
    await client(second, tmp_path / "two", clock).write("k", "four")
    ends = await second.end(TOPIC)
    await second.truncate(TOPIC, ends)
    with pytest.raises(LogTruncatedError):
        await store.catch_up(second)
    assert [fact.value for fact in store.facts("WHERE live = 1")] == ["two"]
    await first.close()
    await second.close()


async def test_of_two_facts_with_one_id_the_first_counts(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await open_log("memory://", clock=clock)
    memory = client(log, tmp_path, clock)
    await memory.write("good", 1)
    late = MemoryWritten(key="k", value=1, value_type="int", scope="user:ada", memory_id="same")
    early = late.model_copy(update={"value": 2})
    producer = AgentRef("p", "client", "local", "i")
    for event in (late, early):
        await log.append([root_event(event, producer, clock, partition_key="user:ada")])
    await memory.write("also good", 2)
    found = await memory.query()
    assert [(item.key, item.value) for item in found] == [("also good", 2), ("good", 1), ("k", 1)]
    await log.close()


def commits(store: MemoryStore) -> int:
    with store.reading() as db:
        found: int = db.execute("SELECT tick FROM about").fetchone()[0]
        return found


async def test_records_without_facts_are_read_once_and_cost_no_commit(tmp_path: Path) -> None:
    clock = VirtualClock()
    log = await open_log("memory://", clock=clock)
    memory = client(log, tmp_path, clock)
    await memory.write("a", 1)
    store = memory.durable.store
    await store.catch_up(log)
    before = commits(store)
    producer = AgentRef("p", "client", "local", "i")
    other = SubjectErased(subject="user:zoe", keys=[], records=0, erased_by="p", reason=None)
    for _ in range(3):
        await log.append([root_event(other, producer, clock, partition_key=SCOPES[0])], topic=TOPIC)
        await store.catch_up(log)
    assert commits(store) == before
    await memory.write("b", 2)
    assert [item.key for item in await memory.query()] == ["a", "b"]
    assert commits(store) > before
    # Another process empties the file: what this one has read of the log does not count any more.
    await log.append([root_event(other, producer, clock, partition_key=SCOPES[0])], topic=TOPIC)
    await store.catch_up(log)
    MemoryStore(store.path).wipe()
    assert [item.key for item in await memory.query()] == ["a", "b"]
    await log.close()
