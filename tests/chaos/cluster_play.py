"""Plays one fault under one seed: a real Kafka, real workers and work for them; fault, healing, verdict."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.chaos.cluster import Cluster
from tests.chaos.cluster_crew import Crew
from tests.chaos.cluster_faults import BROKERS, FAULTS, MINUTES, Scene
from tests.chaos.cluster_judge import judged
from tests.chaos.cluster_load import Load
from tests.chaos.cluster_outside import Ledger
from tests.chaos.link import Link
from tests.support.invariants import Book

PLACES: Final = 12
CREW: Final = 3
PARTITIONS: Final = 4
CATCH_UP_S: Final = 30.0
PATIENCE_S: Final = 150.0
"""So long everything has to have an outcome, else it counts as lost."""
_SETTLES_S: Final = 4.0


@dataclass(slots=True)
class Outcome:
    """What became of a fault under a seed.

    Attributes:
        faults: what does not hold; empty: all does.
        caught_up_s: after healing, until all that was asked for had an outcome.
        counts: what happened, for the curious.
    """

    fault: str
    seed: int
    faults: list[str] = field(default_factory=list)
    caught_up_s: float = PATIENCE_S
    counts: dict[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """For people."""
        words = Counter(_verdict(fault) for fault in self.faults)
        verdict = ", ".join(f"{words.pop(word, 0)} {word}" for word in ("lost", "doubled", "diverged"))
        others = "".join(f", {count} {word}" for word, count in sorted(words.items()))
        counts = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        took = f"caught up in {self.caught_up_s:.1f} s"
        return f"{self.fault} seed {self.seed}: {verdict}{others}; {took}; {counts}"


def _verdict(fault: str) -> str:
    word = fault.partition(":")[0]
    if word in ("lost", "gap", "passed over", "undone"):
        return "lost"
    if word in ("doubled", "repeated", "effect", "late", "answer"):
        return "doubled"
    if word in ("diverged", "aborted", "torn", "fenced", "epoch", "handler"):
        return "diverged"
    return word


async def play(
    fault: str,
    seed: int,
    folder: Path,
    *,
    minutes: float | None = None,
    per_s: float = 3.0,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Play it in `folder`, which keeps what brokers and workers say."""
    begun = time.monotonic()

    def timed(line: str) -> None:
        say(f"{time.monotonic() - begun:7.2f} {line}")

    outcome = Outcome(fault, seed)
    count = BROKERS.get(fault, 1)
    links = [Link(0) for _ in range(PLACES if count == 1 else 0)]
    for link in links:
        await link.listen()
    cluster = Cluster(folder / "brokers", count, gates=[link.port for link in links])
    for link, port in zip(links, cluster.nodes[0].gates, strict=True):
        link.target = port

    def url(place: int) -> str:
        at = f"127.0.0.1:{links[place % PLACES].port}" if links else cluster.bootstrap
        return f"kafka://{at}?namespace=chaos&partitions={PARTITIONS}"

    crew = Crew(folder, url, CREW, timed)
    try:
        await cluster.up()
        timed(f"Kafka is up at {cluster.bootstrap}")
        log = await open_log(f"kafka://{cluster.bootstrap}?namespace=chaos&partitions={PARTITIONS}")
        try:
            scene = Scene(cluster, crew, links, Random(f"{seed} {fault}"), 0.0, timed)
            limit_s = 60 * (minutes if minutes is not None else MINUTES.get(fault, 1.0))
            await _play(outcome, scene, log, limit_s, per_s, timed)
        finally:
            await log.close()
    finally:
        crew.kill()
        cluster.down()
        for link in links:
            await link.close()
    return outcome


async def _play(
    outcome: Outcome, scene: Scene, log: EventLog, limit_s: float, per_s: float, say: Callable[[str], None]
) -> None:
    crew, ledger = scene.crew, Ledger(scene.crew.outside)
    chance, bursts = Random(f"{outcome.seed} load"), Random(f"{outcome.seed} bursts")
    load = Load(log, chance, bursts, per_s, ledger, lambda: crew.alive)
    await load.begin()
    for _ in range(crew.size):
        crew.join()
    if outcome.fault != "storm":
        crew.watch()
    async with asyncio.timeout(60.0):
        while load.reader.sums == 0 or not load.reader.watch.last:
            await asyncio.sleep(0.1)
    await asyncio.sleep(_SETTLES_S)
    say("trouble begins")
    scene.until_s = time.monotonic() + limit_s
    await FAULTS[outcome.fault](scene)
    # Healed: all brokers, lines and workers are there.
    healed = time.monotonic()
    say("healed")
    if outcome.fault == "storm":
        crew.watch()
    await load.stop_asking()
    while time.monotonic() - healed < PATIENCE_S and not load.caught_up():
        await asyncio.sleep(0.1)
    outcome.caught_up_s = time.monotonic() - healed
    for line in load.missing():
        outcome.faults.append(f"lost: not dealt with {PATIENCE_S:.0f} s after healing: {line}")
    if outcome.caught_up_s > CATCH_UP_S:
        outcome.faults.append(f"slow: caught up after {outcome.caught_up_s:.1f} s")
    say(f"caught up in {outcome.caught_up_s:.1f} s")
    await crew.end()
    outcome.faults += crew.faults
    await asyncio.sleep(1.0)
    await load.end()
    found, book = await judged(log, load, ledger.calls())
    outcome.faults += found
    outcome.counts = _counts(scene, load, ledger, book)


def _counts(scene: Scene, load: Load, ledger: Ledger, book: Book) -> dict[str, int]:
    journals = [record for records in book.journals.values() for record in records]
    types = Counter(record.event_type for record in journals)
    calls = ledger.calls()
    return {
        "runs": len(book.runs),
        "facts": len(load.facts),
        "calls": len(calls),
        "broken off": sum(call.outcome is None for call in calls),
        "unknown": types["effect.outcome.unknown"],
        "takeovers": types["partition.acquired"],
        "processes": scene.crew.begun,
        "gave up": scene.crew.given_up,
        **scene.did,
    }
