"""Vectors of the index: compared as one by one, whatever came and went, in which process or order."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import AgentMemoryError, ConfigError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.memory import MemoryManager, memory_of, near, semantic
from noesium_stream.memory.fact import Fact
from noesium_stream.memory.near import NearVectors


class Letters:
    """Texts with the same letters are near to each other."""

    name = "letters-1"
    size = 70

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[text.count(chr(97 + at % 26)) - 0.5 for at in range(self.size)] for text in texts]


class Index:
    """Vectors of numbers, each made of its own seed, and what is expected of them."""

    def __init__(self) -> None:
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.executescript(semantic.SCHEMA)
        self.near = NearVectors(Letters())
        self.known: dict[int, tuple[str, near.Vectors]] = {}

    def vector(self, number: int, size: int = 70) -> near.Vectors:
        return np.random.default_rng(number).standard_normal(size).astype(np.float32)

    def add(self, rows: Sequence[tuple[int, str]]) -> None:
        vectors = np.array([self.vector(number) for number, _ in rows])
        places = self.near.add(self.db, rows, vectors)
        for (number, mark), vector in zip(rows, vectors, strict=True):
            self.known[number] = (mark, vector)
            row = (number, mark, "", vector.tobytes(), places[number])
            self.db.execute("INSERT INTO item VALUES (?, ?, ?, ?, ?)", row)

    def remove(self, numbers: Sequence[int]) -> None:
        query = f"SELECT number, chunk FROM item WHERE number IN ({','.join(map(str, numbers))})"
        self.near.remove(self.db, self.db.execute(query).fetchall())
        for number in numbers:
            self.db.execute("DELETE FROM item WHERE number = ?", (number,))
            del self.known[number]

    def expected(self, asked: near.Vectors, limit: int, marks: Sequence[str]) -> list[int]:
        scores = [(-float(one @ asked), n) for n, (mark, one) in self.known.items() if mark in marks]
        return [number for _, number in sorted(scores)[:limit]]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "CHUNK", 8)


CHANGES = st.lists(st.tuples(st.booleans(), st.integers(1, 20), st.sampled_from("ab")), max_size=25)


@given(CHANGES, st.integers(1, 30), st.sampled_from(["a", "b", "ab", "c"]))
def test_whatever_came_and_went_the_nearest_are_those_of_one_comparison_each(
    changes: list[tuple[bool, int, str]], limit: int, marks: str
) -> None:
    near.CHUNK, index, following = 8, Index(), 1
    for comes, count, mark in changes:
        if comes:
            index.add([(number, mark) for number in range(following, following + count)])
            following += count
        elif index.known:
            index.remove(random.Random(count).sample(sorted(index.known), min(count, len(index.known))))
    asked = index.vector(10_000)
    assert index.near.nearest(index.db, asked, limit, marks) == index.expected(asked, limit, marks)
    kept = index.db.execute("SELECT sum(count), min(count), max(count) FROM signs").fetchone()
    assert kept[0] in (None, len(index.known))
    assert kept[0] is None or 0 < kept[1] <= kept[2] <= 8


def test_places_that_became_free_are_taken_again() -> None:
    index = Index()
    index.add([(number, "a") for number in range(1, 81)])
    for number in range(1, 400):
        index.remove([min(index.known)])
        index.add([(100 + number, "a")])
    assert index.db.execute("SELECT count(*) FROM signs").fetchone() == (10,)


def test_among_many_those_with_near_signs_are_compared_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "AGAIN", 40)
    index = Index()
    index.add([(number, "a") for number in range(1, 2_001)])
    for number in (7, 700, 1_999):
        asked = index.vector(number) + 0.3 * index.vector(-number % 977 + 5_000)
        assert index.near.nearest(index.db, asked, 10, "a")[0] == number
    same = Index()
    vectors = np.ones((200, 70), dtype=np.float32)
    places = same.near.add(same.db, [(number, "a") for number in range(200)], vectors)
    rows = [(number, "a", "", vectors[0].tobytes(), places[number]) for number in range(200)]
    same.db.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", rows)
    assert same.near.nearest(same.db, vectors[0], 5, "a") == [0, 1, 2, 3, 4], "equal ones do not add up"


@pytest.mark.parametrize("size", [69, 6, 700])
def test_vectors_of_two_lengths_are_told(size: int) -> None:
    index = Index()
    index.add([(1, "a")])
    with pytest.raises(AgentMemoryError, match="another length"):
        index.near.nearest(index.db, index.vector(1, size), 5, "a")


@pytest.mark.parametrize("made", [[[1.0], [1.0, 2.0]], [[1.0]], [[], []]])
def test_an_embedder_that_does_not_make_one_vector_for_each_text_is_told(made: list[list[float]]) -> None:
    class Wrong(Letters):
        def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            return made

    with pytest.raises(AgentMemoryError, match="one vector for each text"):
        NearVectors(Wrong()).embed(["a", "b"])


def test_vectors_have_length_one_and_a_zero_vector_stays() -> None:
    class Two(Letters):
        def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            return [[3, 4], [0, 0]]

    assert np.allclose(NearVectors(Two()).embed(["a", "b"]), [[0.6, 0.8], [0, 0]])


def client(log: EventLog, folder: Path, embedder: Letters | None) -> MemoryManager:
    producer = AgentRef("p", "client", "local", "i")
    return memory_of(log, folder, producer, "user:ada", clock=VirtualClock(), embedder=embedder)


async def found(memory: MemoryManager, text: str) -> list[object]:
    return [one.item.value for one in await memory.search(text, 3)]


async def test_a_key_that_is_written_again_is_found_by_its_new_meaning(tmp_path: Path) -> None:
    log = await open_log("memory://")
    memory = client(log, tmp_path, Letters())
    for key, value in (("q", "aaaa"), ("r", "bbbb"), ("s", "cccc")):
        await memory.write(key, value)
    assert (await found(memory, "aaa"))[0] == "aaaa"
    memory.durable.clock.advance(1)  # type: ignore[attr-defined]
    await memory.write("q", "dddd")
    assert (await found(memory, "ddd"))[0] == "dddd"
    assert "aaaa" not in await found(memory, "aaa")
    await log.close()


@pytest.mark.parametrize("embedder", [None, Letters()])
async def test_two_processes_make_one_index_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: Letters | None
) -> None:
    log = await open_log("memory://")
    one, other = client(log, tmp_path, embedder), client(log, tmp_path, embedder)
    for number in range(30):
        await one.write(f"k{number}", f"rain {number}")
    await one.durable.store.catch_up(log)
    whole, rivals = semantic.text_of, [other.semantic]

    def rivalled(fact: Fact) -> str:
        if rivals:
            rivals.pop()._refresh()
        return whole(fact)

    monkeypatch.setattr(semantic, "text_of", rivalled)
    assert one.semantic._refresh() == 30
    assert len(await one.search("rain", 50)) == 30
    assert len(await other.search("rain", 50)) == 30
    await log.close()


async def test_a_fact_that_changes_while_the_index_is_made_is_in_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://")
    memory = client(log, tmp_path, Letters())
    for number in range(30):
        await memory.write(f"k{number}", f"rain {number}", source="sky")
    store = memory.durable.store
    await store.catch_up(log)
    await memory.retract("sky")
    await memory.durable.restore("sky")
    monkeypatch.setattr(semantic, "_BATCH", 10)
    whole, seen = semantic.text_of, list[str]()

    def changing(fact: Fact) -> str:
        seen.append(fact.id)
        if len(seen) == 15:
            store.change(lambda db, tick: db.execute("UPDATE fact SET changed = ?", (tick,)))
        return whole(fact)

    monkeypatch.setattr(semantic, "text_of", changing)
    memory.semantic._refresh()
    assert len(seen) > 30
    assert len(await memory.search("rain", 50)) == 30
    await log.close()


@pytest.fixture
def without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "noesium_stream.memory.near")
    monkeypatch.delattr("noesium_stream.memory.near")


@pytest.mark.usefixtures("without_numpy")
async def test_without_numpy_search_by_meaning_says_what_to_install(tmp_path: Path) -> None:
    log = await open_log("memory://")
    with pytest.raises(ConfigError, match="needs numpy") as error:
        client(log, tmp_path, Letters())
    assert "noesium-stream[semantic]" in str(error.value.hint)
    await client(log, tmp_path, None).search("rain")
    await log.close()


async def test_an_index_that_is_damaged_while_it_is_open_is_made_anew(tmp_path: Path) -> None:
    log = await open_log("memory://")
    memory = client(log, tmp_path, Letters())
    await memory.write("q", "rain")
    assert await found(memory, "rain") == ["rain"]
    memory.semantic.close()
    size = memory.semantic.path.stat().st_size
    with memory.semantic.path.open("r+b") as file:
        file.seek(16_384)
        file.write(bytes([crc32(b"x") & 0xFF]) * (size - 16_384))
    assert await found(memory, "rain") == ["rain"]
    await memory.write("r", "rain as well")
    assert len(await found(memory, "rain")) == 2
    await log.close()
