"""Large states: restarting, a shipped snapshot, memory, and the past."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import uuid
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from noesium_stream.clock import SystemClock
from noesium_stream.log.port import EventLog
from noesium_stream.projection.stored.stored_projection import StoredProjection
from noesium_stream.projection.transfer.object_store import Depot
from noesium_stream.projection.transfer.push import push
from tests.bench.by_hand.bare import Ready, ready
from tests.bench.events import DOMAIN, envelopes
from tests.bench.harness import Figure, Side, progress
from tests.bench.place import kafka_log
from tests.bench.projection_folds import Count
from tests.bench.projection_place import BenchTopic, child, drop_from_cache
from tests.bench.projection_settings import ProjectionSettings
from tests.support.kafka import KafkaServer

_PREPARED = 20_000
MOMENTS = (0.25, 0.5, 0.9)
"""Of the log, for `--at`."""


class LargeState:
    """A topic whose events have a key each, and the state folded from it."""

    def __init__(self, kafka: KafkaServer, log: EventLog, settings: ProjectionSettings, keys: int) -> None:
        self.keys = keys
        self.topic = BenchTopic(kafka, log, log.topology.events(DOMAIN))
        self.folder = settings.folder / log.topology.namespace
        self.built: dict[str, Any] = {}
        self._settings = settings
        self._random = random.Random(keys)
        self._prepared = ready(envelopes(_PREPARED), log.topology.spec(self.topic.name).partitions)

    def key(self, number: int) -> str:
        """The keys have no order that a tree could profit from."""
        return str(uuid.UUID(int=random.Random(number).getrandbits(128), version=4))

    def records(self, keys: Iterator[str]) -> Iterator[Ready]:
        """Events of about 450 bytes with these keys, in their envelopes too."""
        for key, one in zip(keys, cycle(self._prepared), strict=False):
            yield Ready(key, -1, one.headers, one.value.replace(one.key.encode(), key.encode()))

    async def build(self) -> None:
        """Fill the topic, one event per key, and fold it."""
        progress(f"  {self.keys:,} keys")
        await self.topic.make()
        await self.topic.fill(self.records(map(self.key, range(self.keys))), self._settings.batch)
        self.built = await child("follow", {**self.asked(), "memory": True})
        assert self.built["events"] == self.keys, self.built
        progress(f"    folded in {self.built['seconds']:.1f} s")

    async def add(self, count: int) -> None:
        """Append events of keys that there are."""
        keys = (self.key(self._random.randrange(self.keys)) for _ in range(count))
        await self.topic.fill(self.records(keys), self._settings.batch)

    async def restart(self, *, cold: bool) -> float:
        """Milliseconds from the assignment to the log's end, with a new tail of events."""
        await self.add(self._settings.tail)
        await asyncio.to_thread(os.sync)  # what others have written is not ours to wait for
        if cold:
            drop_from_cache(self.folder)
        found = await child("follow", self.asked())
        assert found["events"] == self.topic.count, found
        return float(found["from_first"] * 1000)

    def asked(self, folder: Path | None = None) -> dict[str, Any]:
        """What a process has to know to fold it."""
        return {**self.topic.asked(), "fold": Count.name, "folder": str(folder or self.folder)}

    @property
    def version_folder(self) -> Path:
        """Where its state files are."""
        return self.folder / Count.name / f"v{Count.version}"


async def measure_state(settings: ProjectionSettings, kafka: KafkaServer) -> list[Figure]:
    """All figures of large states."""
    progress("state")
    async with kafka_log(kafka) as log, kafka_log(kafka) as other, kafka_log(kafka) as third:
        few = LargeState(kafka, other, settings, settings.fewer_keys)
        many = LargeState(kafka, log, settings, settings.keys)
        none = BenchTopic(kafka, third, third.topology.events(DOMAIN))
        await none.make()
        for state in (few, many):
            await state.build()
        figures = await _memory(settings, many, none)
        figures += await _past(settings, many)
        figures += await _restarts(settings, many, few)
        figures += await _shipped(settings, many)
        return figures


async def _memory(settings: ProjectionSettings, many: LargeState, none: BenchTopic) -> list[Figure]:
    folder = settings.folder / "none"
    empty = await child("follow", {**none.asked(), "fold": Count.name, "folder": str(folder), "memory": True})
    await many.add(settings.tail)
    again = await child("follow", {**many.asked(), "memory": True})
    rest = empty["most_mb"]
    more = Side(f"{many.keys:,} keys folded, most", [many.built["most_mb"] - rest])
    resumed = Side(f"{many.keys:,} keys, resumed, most", [again["most_mb"] - rest])
    base = Side("attached, no keys, in all", [rest])
    how = partial(Figure, "memory", unit="MB", theirs=base, at_least=False)
    note = "Resident memory beyond that of the same process attached to an empty topic."
    return [
        how(name="more than with no keys", ours=more, target=40, absolute=True, note=note),
        how(name="more than with no keys", ours=resumed),
    ]


async def _past(settings: ProjectionSettings, many: LargeState) -> list[Figure]:
    nothing = many.asked(settings.folder / "nothing")
    end = many.topic.time_ms(1.0)
    replay = await child("past", {**nothing, "time_ms": end})
    progress(f"  replayed in {replay['seconds']:.1f} s")
    found = []
    for share in MOMENTS:
        asked = {**many.asked(), "time_ms": many.topic.time_ms(share)}
        found.append((await child("past", asked))["seconds"])
        progress(f"  at {share:.0%}: {found[-1]:.2f} s")
    moments = ", ".join(f"{share:.0%}" for share in MOMENTS)
    ours = Side("state_at, with the copies kept", found)
    theirs = Side("state_at, from the beginning", [replay["seconds"]] * len(found))
    note = f"{many.topic.count:,} events, all partitions, at {moments} of the log; the replay is to its end."
    return [Figure("past", "--at an earlier time", "s", ours, theirs, 0.1, at_least=False, note=note)]


async def _restarts(settings: ProjectionSettings, many: LargeState, few: LargeState) -> list[Figure]:
    found: dict[str, list[float]] = {"many": [], "few": [], "many, cold": [], "few, cold": []}
    for number in range(settings.repetitions):
        found["many"].append(await many.restart(cold=False))
        found["few"].append(await few.restart(cold=False))
        found["many, cold"].append(await many.restart(cold=True))
        found["few, cold"].append(await few.restart(cold=True))
        said = ", ".join(f"{name} {times[-1]:.0f} ms" for name, times in found.items())
        progress(f"  restart {number + 1}/{settings.repetitions}: {said}")
    warm = Side(f"{many.keys:,} keys, warm", found["many"])
    cold = Side(f"{many.keys:,} keys, cold page cache", found["many, cold"])
    fewer = Side(f"{few.keys:,} keys, warm", found["few"])
    fewer_cold = Side(f"{few.keys:,} keys, cold page cache", found["few, cold"])
    note = f"From the assignment to the log's end, {settings.tail:,} events later; a fresh process each time."
    how = partial(Figure, "restart", unit="ms", at_least=False)
    return [
        how(name="ready, warm", ours=warm, theirs=fewer, target=250, absolute=True, note=note),
        how(name="ready, cold page cache", ours=cold, theirs=fewer_cold, target=450, absolute=True),
        how(name="ready, ten times the keys", ours=warm, theirs=fewer, target=1.6),
    ]


async def _shipped(settings: ProjectionSettings, many: LargeState) -> list[Figure]:
    """A new machine: pull, attach, fold the tail; beside a machine that folds everything."""
    more = settings.shipped - many.topic.count
    if more > 0:
        progress(f"  {more:,} events more")
        await many.add(more)
        await child("follow", many.asked())
    url = settings.folder / "depot"
    stored = StoredProjection(many.version_folder, lambda reference: Count())
    push(Depot(str(url)), stored, SystemClock(), None)
    await many.add(settings.tail)
    pulled, replayed = [], []
    for number in range(settings.repetitions):
        folder = settings.folder / f"new{number}"
        found = await child("pull", {**many.asked(folder), "depot": str(url)})
        assert found["events"] == many.topic.count, found
        pulled.append(found["seconds"])
        shutil.rmtree(folder)
        progress(f"  from the snapshot: {pulled[-1]:.2f} s")
    folder = settings.folder / "replayed"
    replayed = [(await child("follow", many.asked(folder)))["seconds"]]
    shutil.rmtree(folder)
    progress(f"  replayed: {replayed[0]:.1f} s")
    ours = Side("pulled, then attached", pulled)
    theirs = Side("replayed", replayed * len(pulled))
    events = f"{many.topic.count:,} events over {many.keys:,} keys"
    note = f"{events}; pulled from a folder, {settings.tail:,} events later, all of it timed."
    return [Figure("shipped", "ready", "s", ours, theirs, 1 / 20, at_least=False, note=note)]
