"""Memory: reads, queries and searches among many facts, the index made anew, writes of a step."""

from __future__ import annotations

import random
import secrets
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, TypedDict

import numpy as np
from langgraph.graph import START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.client import Client
from noesium_stream.clock import SystemClock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.memory import DurableMemory, MemoryFilter, SemanticMemory, semantic
from noesium_stream.memory.compaction import Compacted, ExcerptSummarizer, compact
from noesium_stream.memory.fact import Fact
from noesium_stream.memory.fold import MemoryFold
from noesium_stream.memory.item import items_of
from noesium_stream.memory.near import NearVectors
from noesium_stream.memory.queries import live_of_filter, live_of_key
from noesium_stream.memory.semantic import PAGE_BYTES
from noesium_stream.memory.store import MemoryStore
from noesium_stream.state_file.sqlite import connect
from noesium_stream.worker import Worker
from tests.bench.harness import Figure, Side, interleave, percentile, progress

OF_A_SCOPE = 1_000
_WORDS = [
    f"{first}{second}" for first in ("ra", "so", "ti", "mu", "ke") for second in ("n", "lo", "pat", "rix")
]
_BATCH = 10_000
_NUMBERS = 256
"""Of a vector."""
_NEAR = 20
"""Searches for the nearest vectors of which one value is the middle."""
_ASKED = 300
_OPENED = 20
"""Openings of a session of which one value is the middle."""


@dataclass(frozen=True)
class MemorySettings:
    """Sizes; the defaults are those of a full run."""

    folder: Path
    facts: int = 1_000_000
    repetitions: int = 5
    runs: int = 20
    turns: int = 100_000


def facts_of(count: int) -> Iterator[Fact]:
    """Facts of scopes with a thousand each; twelve words, and one of fifty kinds."""
    chance = random.Random(1)
    for number in range(count):
        words = " ".join(chance.choices(_WORDS, k=12))
        yield Fact(
            f"f{number:09}",
            f"user:{number // OF_A_SCOPE}",
            f"topic.{number % OF_A_SCOPE}",
            {"text": f"{words} {number}"},
            number + 1,
            "bench",
            f"e{number}",
            metadata={"kind": f"k{number % 50}"},
        )


def filled(settings: MemorySettings) -> MemoryStore:
    """A store with many facts, folded as from a log, without one."""
    store = MemoryStore(settings.folder / f"{secrets.token_hex(4)}.db")
    waiting = list(facts_of(settings.facts))
    for start in range(0, len(waiting), _BATCH):

        def change(db: sqlite3.Connection, tick: int, start: int = start) -> None:
            fold = MemoryFold(db, tick)
            for fact in waiting[start : start + _BATCH]:
                fold.apply(fact)

        store.change(change)
        progress(f"{min(start + _BATCH, len(waiting)):,} facts")
    return store


def _asked(settings: MemorySettings) -> list[tuple[str, str]]:
    chance = random.Random(2)
    numbers = [chance.randrange(settings.facts) for _ in range(_ASKED)]
    return [(f"user:{number // OF_A_SCOPE}", f"topic.{number % OF_A_SCOPE}") for number in numbers]


def _p50(calls: Callable[[str, str], object], asked: list[tuple[str, str]]) -> float:
    took = []
    for scope, key in asked:
        begun = perf_counter()
        calls(scope, key)
        took.append(perf_counter() - begun)
    return percentile(took, 0.5)


async def measure_reads(settings: MemorySettings) -> list[Figure]:
    """One key, a filtered query, and the first read after a restart; beside one row of SQLite."""
    store, asked = filled(settings), _asked(settings)
    bare = sqlite3.connect(store.path)
    row = "SELECT value FROM fact WHERE live = 1 AND scope = ? AND key = ?"

    async def read() -> float:
        return _p50(lambda scope, key: items_of(live_of_key(store, scope, key)), asked) * 1e6

    async def one_row() -> float:
        return _p50(lambda scope, key: bare.execute(row, (scope, key)).fetchone(), asked) * 1e6

    async def query() -> float:
        wanted = MemoryFilter(prefix="topic.", metadata={"kind": "k7"}, limit=100)
        plain = MemoryFilter(prefix="topic.", limit=100)
        both = (wanted, plain)
        return (
            _p50(lambda scope, _: [items_of(live_of_filter(store, one, [scope])) for one in both], asked)
            * 500
        )

    async def opened() -> float:
        store.close()
        begun = perf_counter()
        live_of_key(store, *asked[0])
        return (perf_counter() - begun) * 1e3

    values = await interleave(
        {"read": read, "row": one_row, "query": query, "opened": opened}, settings.repetitions
    )
    store.close()
    bare.close()
    beside = Side("one row of SQLite, µs", values["row"])
    of = f"of {settings.facts:,} facts"
    return [
        _figure("reads", f"read a key {of}, p50", "µs", values["read"], beside, 100),
        _figure("reads", f"filtered query of 100 {of}, p50", "ms", values["query"], beside, 5),
        _figure("reads", f"the first read after a restart, {of}", "ms", values["opened"], beside, 250),
    ]


class _Words:
    """An embedder without a model: the sum of a vector for each of the words that facts have."""

    name = "bench-1"

    def __init__(self) -> None:
        self._of = dict(
            zip(_WORDS, np.random.default_rng(1).standard_normal((len(_WORDS), _NUMBERS)), strict=True)
        )
        self._none = np.zeros(_NUMBERS)

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [sum((self._of.get(word, self._none) for word in text.split()), self._none) for text in texts]


async def measure_search(settings: MemorySettings) -> list[Figure]:
    """Ten results by words, and by words and meaning; and the index made anew."""
    store, asked = filled(settings), _asked(settings)
    words, both = SemanticMemory(store), SemanticMemory(store, _Words())
    begun, worked = perf_counter(), process_time()
    count = await words.rebuild_index()
    per_second = count / (perf_counter() - begun)
    of_processor = count / (process_time() - worked)
    await both.rebuild_index()
    chance = random.Random(3)

    def searching(index: SemanticMemory) -> Callable[[], Awaitable[float]]:
        async def search() -> float:
            took = []
            for scope, _ in asked[:100]:
                text = " ".join(chance.sample(_WORDS, 2))
                begun = perf_counter()
                await index.search(text, 10, scopes=[scope])
                took.append(perf_counter() - begun)
            return percentile(took, 0.5) * 1e3

        return search

    async def read() -> float:
        return _p50(lambda scope, key: live_of_key(store, scope, key), asked) * 1e3

    values = await interleave(
        {"words": searching(words), "both": searching(both), "read": read}, settings.repetitions
    )
    words.close()
    both.close()
    store.close()
    beside = Side("read a key, ms", values["read"])
    of = f"of {settings.facts:,} facts"
    rate = Figure(
        "search",
        f"make the index of words anew, {of}",
        "documents/s",
        Side("index", [per_second]),
        Side("by the processor's time", [of_processor]),
        20_000,
        absolute=True,
    )
    return [
        _figure("search", f"ten results by words {of}, p50", "ms", values["words"], beside, 30),
        _figure("search", f"ten results by words and meaning {of}, p50", "ms", values["both"], beside, 30),
        rate,
    ]


async def measure_vectors(settings: MemorySettings) -> list[Figure]:
    """The nearest vectors, when all are of one scope; beside the processor's time that it takes."""
    db = connect(settings.folder / f"{secrets.token_hex(4)}.db", PAGE_BYTES)
    db.executescript(semantic.SCHEMA)
    vectors, numbers = NearVectors(_Words()), np.random.default_rng(2)
    for start in range(0, settings.facts, _BATCH):
        some = numbers.standard_normal((_BATCH, _NUMBERS), dtype=np.float32)
        rows = [(start + at, "mark") for at in range(_BATCH)]
        db.execute("BEGIN")
        places = vectors.add(db, rows, some)
        items = ((at, "mark", "a text", some[at - start].tobytes(), places[at]) for at, _ in rows)
        db.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", items)
        db.execute("COMMIT")
        progress(f"{start + _BATCH:,} vectors")
    by: dict[str, list[float]] = {"wall": [], "processor": []}
    for _ in range(settings.repetitions):
        wall, processor = [], []
        for one in numbers.standard_normal((_NEAR, _NUMBERS), dtype=np.float32):
            begun, worked = perf_counter(), process_time()
            vectors.nearest(db, one, 40, ["mark"])
            wall.append((perf_counter() - begun) * 1e3)
            processor.append((process_time() - worked) * 1e3)
        by["wall"].append(percentile(wall, 0.5))
        by["processor"].append(percentile(processor, 0.5))
    db.close()
    name = f"the 40 nearest of {settings.facts:,} vectors of one scope, p50"
    return [_figure("vectors", name, "ms", by["wall"], Side("by the processor", by["processor"]), 30)]


def _figure(group: str, name: str, unit: str, values: Any, beside: Side, target: float) -> Figure:
    return Figure(group, name, unit, Side("memory", values), beside, target, at_least=False, absolute=True)


class _Work(TypedDict, total=False):
    writes: int
    seconds: float


class _Writer(BaseGraphicAgent):
    agent_type = "writer"

    def get_state_class(self) -> type[_Work]:
        return _Work

    def _build_graph(self) -> StateGraph[Any]:
        return StateGraph(_Work).add_node("write", self.write).add_edge(START, "write")

    async def write(self, work: _Work) -> dict[str, Any]:
        for number in range(work["writes"]):
            await self.memory.write(f"key.{number}", "a value of some words")
        return {}


async def measure_writes(settings: MemorySettings) -> list[Figure]:
    """A run of one step that writes ten facts, beside the same run without."""
    log = await open_log(f"sqlite:///{settings.folder / f'{secrets.token_hex(4)}.db'}")
    home = settings.folder / secrets.token_hex(4)
    async with Worker(log, [_Writer], home=home), Client(log) as client:

        async def runs(writes: int) -> float:
            begun = perf_counter()
            for _ in range(settings.runs):
                await (await client.start("writer", {"writes": writes})).result(timeout=600)
            return (perf_counter() - begun) / settings.runs * 1e3

        await runs(10)
        values = await interleave({"ten": lambda: runs(10), "none": lambda: runs(0)}, settings.repetitions)
    await log.close()
    return [
        Figure(
            "writes",
            "a run of one step with ten writes, SQLite",
            "ms",
            Side("ten writes", values["ten"]),
            Side("none", values["none"]),
            1.1,
            at_least=False,
        )
    ]


async def measure_sessions(settings: MemorySettings) -> list[Figure]:
    """Open a conversation of many turns, compacted, beside one of a hundred and the same as it is.

    To open is the first read of what is live of it, by a process that has just begun.
    """
    log = await open_log("memory://")
    memories: dict[str, DurableMemory] = {}
    for name, count in (("few", 100), ("many", settings.turns), ("plain", settings.turns)):
        store = MemoryStore(settings.folder / f"{secrets.token_hex(4)}.db")
        producer = AgentRef("bench", "client", "local", "1")
        memories[name] = DurableMemory(store, log, producer, SystemClock(), f"session:{name}")
        _say(store, name, count)
        progress(f"{count:,} turns of {name}")
    begun, summaries = perf_counter(), 0
    while (done := await compact(memories["many"], "turn.", ExcerptSummarizer(), most=400)) != Compacted():
        summaries += len(done.summaries)
    took = perf_counter() - begun
    progress(f"{summaries:,} summaries")
    every = MemoryFilter(prefix="turn.", limit=1_000)

    def opening(memory: DurableMemory) -> Callable[[], Awaitable[float]]:
        async def opened() -> float:
            took = []
            for _ in range(_OPENED):
                memory.store.close()
                begun = perf_counter()
                await memory.query(every)
                took.append(perf_counter() - begun)
            return percentile(took, 0.5) * 1e3

        return opened

    values = await interleave(
        {name: opening(memory) for name, memory in memories.items()}, settings.repetitions
    )
    live = {name: len(await memory.query(every)) for name, memory in memories.items()}
    for memory in memories.values():
        memory.store.close()
    await log.close()
    compacted = Side(f"compacted to {live['many']} facts", values["many"])
    few = Side(f"100 turns, {live['few']} facts", values["few"])
    plain = Side(f"its first {live['plain']:,} turns", values["plain"])
    of = f"{settings.turns:,} turns"
    once = Side("once", [1.0])
    rate = Side("by excerpts", [settings.turns / took])
    return [
        Figure("sessions", f"open a session of {of}, p50", "ms", compacted, few, 1.2, at_least=False),
        Figure("sessions", "the same, not compacted", "ms", compacted, plain, 1.0, at_least=False),
        Figure("sessions", f"compact {of}, once", "turns/s", rate, once, 1_000, absolute=True),
    ]


def _say(store: MemoryStore, session: str, count: int) -> None:
    """Fold the turns of a session, as from a log, without one."""
    chance = random.Random(4)
    scope = f"session:{session}"
    for start in range(0, count, _BATCH):

        def change(db: sqlite3.Connection, tick: int, start: int = start) -> None:
            fold = MemoryFold(db, tick)
            for at in range(start, min(start + _BATCH, count)):
                text = f"{' '.join(chance.choices(_WORDS, k=30))} {at}"
                fold.apply(Fact(f"{session}{at:09}", scope, f"turn.{at:09}", text, at + 1, "bench", f"e{at}"))

        store.change(change)


OF_MEMORY: dict[str, Callable[[MemorySettings], Awaitable[list[Figure]]]] = {
    "reads": measure_reads,
    "search": measure_search,
    "vectors": measure_vectors,
    "writes": measure_writes,
    "sessions": measure_sessions,
}
