"""SQLite: lone commits, batches, and waking a reader in another process, beside the same by hand."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.prepare import prepare_append
from noesium_stream.log.sqlite.store import SqliteStore
from noesium_stream.log.topics import partition_of
from tests.bench.by_hand.sqlite_rows import insert, insert_many, open_rows, row
from tests.bench.events import DOMAIN, catalogue, envelopes
from tests.bench.harness import Figure, Side, percentile, progress
from tests.bench.settings import Settings
from tests.bench.waking import measure_waking

BATCH = 500
OURS = "EventLog.append"
READY = "the store, ready bytes"
BARE = "bare: ready bytes"
BY_HAND = "by hand: fastavro, json"


async def measure(settings: Settings) -> list[Figure]:
    """Lone commits and batches under FULL and NORMAL, then waking."""
    figures: list[Figure] = []
    for synchronous in ("FULL", "NORMAL"):
        progress(f"sqlite: synchronous={synchronous}, commits of 1 and of {BATCH}")
        async with (
            _Sides(settings.folder, synchronous, "1") as sides,
            _Sides(settings.folder, synchronous, "2") as others,
        ):
            figures += await _lone(sides, settings)
            figures += await _batches(sides, others, settings)
    return figures + await measure_waking(settings)


class _Sides:
    """Our log and a table by hand, in two files of one folder."""

    def __init__(self, folder: Path, synchronous: str, name: str) -> None:
        self.synchronous = synchronous
        self._ours = folder / f"ours-{synchronous}-{name}.db"
        self._theirs = folder / f"by-hand-{synchronous}-{name}.db"

    async def __aenter__(self) -> _Sides:
        url = f"sqlite:///{self._ours}?synchronous={self.synchronous}"
        log = await open_log(url, catalogue=catalogue())
        assert isinstance(log, EmbeddedLog)
        self.log = log
        self.topic = log.topology.events(DOMAIN)
        await log.ensure_topics([log.topology.spec(self.topic)])
        self.rows: sqlite3.Connection = open_rows(self._theirs, self.synchronous)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.log.close()
        self.rows.close()

    async def append_ready(self, events: Sequence[EventEnvelope]) -> Callable[[], Awaitable[object]]:
        """Our store given bytes that are ready, as `executemany` is: the cost of storing alone."""
        store, topology = self.log.store, self.log.topology
        assert isinstance(store, SqliteStore)
        prepared = prepare_append(events, None, topology, store.codec)
        count = topology.spec(self.topic).partitions
        partitions = [partition_of(record.key, count) for record in prepared]

        async def append() -> object:
            return await store.append(prepared, partitions)

        return append


async def _lone(sides: _Sides, settings: Settings) -> list[Figure]:
    """The median of commits of one event, in microseconds."""
    events = envelopes(settings.commits)
    ready = [row(event) for event in events]
    values: dict[str, list[float]] = {OURS: [], BARE: [], BY_HAND: []}
    # A growing -wal file costs more to flush than one that is written over, as it is from the first
    # checkpoint on: both sides are brought there first.
    for number in range(settings.warm_up):
        await sides.log.append((events[number % len(events)],))
        insert(sides.rows, ready[number % len(events)])
    for _ in range(settings.repetitions):
        times: dict[str, list[float]] = {name: [] for name in values}
        for number, event in enumerate(events):
            # One commit each in turn: what others do to the disk meets all sides alike.
            for turn in range(3):
                name = (OURS, BARE, BY_HAND)[(number + turn) % 3]
                began = time.perf_counter()
                if name == OURS:
                    await sides.log.append((event,))
                else:
                    insert(sides.rows, ready[number] if name == BARE else row(event))
                times[name].append(time.perf_counter() - began)
        for name, found in times.items():
            values[name].append(percentile(found, 0.5) * 1e6)
    name = f"commit of 1 event, p50, {sides.synchronous}"
    ours = Side(OURS, values[OURS])
    note = "Both: WAL and the same synchronous; ours encodes, validates, checksums and wakes other processes."
    return [
        Figure("sqlite", name, "µs", ours, Side(BARE, values[BARE]), 1.5, at_least=False, note=note),
        Figure("sqlite", name, "µs", ours, Side(BY_HAND, values[BY_HAND]), at_least=False),
    ]


async def _batches(sides: _Sides, others: _Sides, settings: Settings) -> list[Figure]:
    """Events per second in commits of `BATCH`.

    Each of the four has a file of its own: in a file of two, one of them pays all checkpoints.
    """
    events = envelopes(BATCH)
    ready = [row(event) for event in events]
    append_ready = await others.append_ready(events)

    async def ours() -> object:
        return await sides.log.append(events)

    async def bare() -> None:
        insert_many(sides.rows, ready)

    async def by_hand() -> None:
        insert_many(others.rows, [row(event) for event in events])

    turns: dict[str, Callable[[], Awaitable[object]]] = {
        OURS: ours, READY: append_ready, BARE: bare, BY_HAND: by_hand
    }  # fmt: skip
    values: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(settings.repetitions):
        spent = dict.fromkeys(turns, 0.0)
        for _ in range(max(2, settings.commits // 10)):
            for name, turn in turns.items():
                began = time.perf_counter()
                await turn()
                spent[name] += time.perf_counter() - began
        for name, seconds in spent.items():
            values[name].append(max(2, settings.commits // 10) * BATCH / seconds)
    found = {name: Side(name, rates) for name, rates in values.items()}
    name = f"commits of {BATCH}, {sides.synchronous}"
    bytes_note = "The same bytes on both sides, made before the clock starts."
    whole_note = "From EventEnvelope on both sides."
    mixed_note = "Ours encodes and validates while the clock runs, executemany is given ready bytes."
    return [
        Figure("sqlite", f"{name}, storing", "events/s", found[READY], found[BARE], 1.0, note=bytes_note),
        Figure(
            "sqlite",
            f"{name}, from EventEnvelope",
            "events/s",
            found[OURS],
            found[BARE],
            1.0,
            note=mixed_note,
        ),
        Figure(
            "sqlite", f"{name}, from EventEnvelope", "events/s", found[OURS], found[BY_HAND], note=whole_note
        ),
    ]
