"""A topic of random and mutated records, and a projection over it.

    python -m tests.support.poison COUNT FOLDER

folds them into FOLDER and prints a line of JSON: how many events and letters they became (`Outcome`), and how
much memory the process took when a tenth was folded and at the end.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import EventValidationError
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.open import open_log
from noesium_stream.log.prepare import Prepared, standard_headers
from noesium_stream.log.topics import Topology
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.engine import ProjectionEngine
from tests.support.events import catalogue, counted
from tests.support.stores import inject

Raw = tuple[str, tuple[tuple[str, bytes], ...], bytes]
"""Key, headers and value of a record."""


class Tally(BaseProjection[int]):
    """How many events a key has had; one with a negative number cannot be taken."""

    name = "tally"
    topics = ("events.*",)

    def initial_state(self) -> int:
        return 0

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key or ""

    def apply(self, state: int, event: EventEnvelope) -> int:
        if event.payload["n"] < 0:
            raise ValueError("negative")
        return state + 1


@dataclass
class Outcome:
    """What became of the records; sizes in KiB, time in seconds."""

    records: int
    events: int
    letters: int
    held_keys: int
    rss_early: int
    rss_end: int
    seconds: float


def raw_records(count: int, seed: int = 1) -> Iterator[Raw]:
    """Random bytes, sound events, and sound events with bytes, headers or both changed."""
    chance, clock = random.Random(seed), VirtualClock(seed=seed)
    codec = EnvelopeCodec(catalogue())
    for _ in range(count):
        key = f"k{chance.randrange(count)}"
        n = -1 if chance.random() < 0.1 else chance.randrange(100)
        event = counted(n, key, clock=clock, text="x" * chance.randrange(60))
        value, headers = codec.encode(event), standard_headers(event)
        kind = chance.random()
        if kind < 0.2:
            value = chance.randbytes(chance.randrange(300))
        elif kind < 0.6:
            value = _mutated(value, chance)
        elif kind < 0.7:
            headers = _mutated_headers(headers, chance)
        elif kind < 0.8:
            value, headers = _mutated(value, chance), _mutated_headers(headers, chance)
        yield key, tuple(headers), value


def _mutated(value: bytes, chance: random.Random) -> bytes:
    data = bytearray(value)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] ^= 1 << chance.randrange(8)
            case 1:
                data[at:at] = chance.randbytes(chance.randint(1, 9))
            case 2:
                del data[at : at + chance.randint(1, 30)]
            case _:
                data[at:at] = data[at : at + 20]
        if not data:
            break
    return bytes(data)


def _mutated_headers(headers: list[tuple[str, bytes]], chance: random.Random) -> list[tuple[str, bytes]]:
    names = [name for name, _ in headers] + ["noesium_seq", "noesium_origin", "é"]
    found = [header for header in headers if chance.random() < 0.8]
    for _ in range(chance.randint(0, 3)):
        found.insert(
            chance.randint(0, len(found)), (chance.choice(names), chance.randbytes(chance.randrange(20)))
        )
    return found


async def fill(log: EmbeddedLog, count: int) -> str:
    """Put the records on one partition; return the topic."""
    topic = log.topology.events("demo")
    await log.ensure_topics([log.topology.spec(topic)])
    batch: list[Prepared] = []
    for number, (key, headers, value) in enumerate(raw_records(count), start=1):
        batch.append(Prepared(topic, 0, key, "", headers, value))
        if len(batch) == 1000 or number == count:
            await inject(log, *batch)
            batch = []
    return topic


def expected(count: int) -> tuple[int, int]:
    """How many of the records become events and how many letters, judged by the codec alone."""
    codec = EnvelopeCodec(catalogue())
    events = letters = 0
    held: set[str] = set()
    for _, _, value in raw_records(count):
        event = _read(codec.decode, value)
        poison = event is None or event.payload["n"] < 0
        unchecked = event or _read(codec.decode_unchecked, value)
        key = unchecked and (unchecked.partition_key or "")
        if poison or key in held:
            letters += 1
            if key is not None:
                held.add(key)
        else:
            events += 1
    return events, letters


def _read(decode: Any, value: bytes) -> EventEnvelope | None:
    try:
        return decode(value)  # type: ignore[no-any-return]
    except EventValidationError:
        return None


def rss_kib() -> int:
    """Memory that the process has now."""
    text = Path("/proc/self/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])


async def main(count: int, folder: Path) -> Outcome:
    log = await open_log(f"sqlite:///{folder}/log.db", topology=Topology("t", 1), catalogue=catalogue())
    assert isinstance(log, EmbeddedLog)
    topic = await fill(log, count)
    sizes: list[int] = []
    began = time.perf_counter()
    with ProjectionEngine(log, folder / "state") as engine:
        engine.register("tally", Tally())
        found = engine._find("tally")

        read = log.read_batches

        async def watched(*args: Any, **options: Any) -> Any:
            async for batch in read(*args, **options):
                if not sizes and batch[0].offset >= count // 10:
                    sizes.append(rss_kib())
                yield batch

        log.read_batches = watched  # type: ignore[method-assign]
        await engine.catch_up("tally")
        seconds = time.perf_counter() - began
        (fold,) = found.folds.values()
        assert fold.cursor == (await log.end(topic))[0] == count
        events = sum(state for _, state in fold.rows())
        letters = sum(1 for _ in fold.letters())
        assert letters == fold.manifest.held
        outcome = Outcome(
            count, events, letters, fold.manifest.blocked, sizes[0], rss_kib(), round(seconds, 1)
        )
    await log.close()
    return outcome


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]))))))
