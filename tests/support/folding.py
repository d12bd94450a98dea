"""Folding without a log: records made by hand, projections over them, and all that a fold has to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from noesium_stream.clock import VirtualClock
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.prepare import standard_headers
from noesium_stream.log.record import Record
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold.partition_fold import PartitionFold
from noesium_stream.projection.fold.repeats import SEEN
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.manifest import Identity
from noesium_stream.projection.state.state_file import StateFile
from tests.support.events import catalogue, counted

TOPIC = "t.events.demo"
CODEC = EnvelopeCodec(catalogue())
CLOCK = VirtualClock()


class History(BaseProjection[list[int]]):
    """The numbers of each key's events, in order; a negative one cannot be taken."""

    name = "history"
    topics = ("events.*",)

    def __init__(self, refuses: Callable[[int], bool] = lambda n: n < 0) -> None:
        self.refuses = refuses

    def initial_state(self) -> list[int]:
        return []

    def key(self, event: Any) -> str | None:
        return event.partition_key  # type: ignore[no-any-return]

    def apply(self, state: list[int], event: EventEnvelope) -> list[int] | None:
        n = event.payload["n"]
        if self.refuses(n):
            raise ValueError(f"{n} is refused")
        if n == 0:
            return None
        return [*state, n]


class InPlace(History):
    """As `History`, changing what it is given, before it fails."""

    in_place = True

    def apply(self, state: list[int], event: EventEnvelope) -> list[int] | None:
        n = event.payload["n"]
        state.append(n)
        if self.refuses(n):
            raise ValueError(f"{n} is refused")
        return None if n == 0 else state


def record(envelope: EventEnvelope, offset: int, *, codec: EnvelopeCodec = CODEC, **extra: bytes) -> Record:
    """An event at an offset; `extra` are headers on top of the standard ones."""
    headers = [*standard_headers(envelope), *extra.items()]
    key = envelope.partition_key or envelope.event_id
    return Record(TOPIC, 0, offset, 1_000 + offset, key, headers, codec.encode(envelope), codec)


def raw(value: bytes, offset: int, key: str = "k", **headers: bytes) -> Record:
    """Any bytes at an offset."""
    return Record(TOPIC, 0, offset, 1_000 + offset, key, list(headers.items()), value, CODEC)


def numbered(numbers: Iterable[tuple[str, int]], start: int = 0) -> list[Record]:
    """`demo.counted` of (key, number), at offsets from `start`."""
    return [
        record(counted(n, key, clock=CLOCK), offset) for offset, (key, n) in enumerate(numbers, start=start)
    ]


def identity(projection: BaseProjection[Any]) -> Identity:
    """What the state file of a projection over `TOPIC` is of."""
    return Identity(projection.name, projection.version, StateCodec(projection).shape, TOPIC, "uid", 0)


def fold_of(
    projection: BaseProjection[Any], path: Path, *, journal: bool = False, **options: Any
) -> PartitionFold[Any]:
    """A fold on a state file, which is made where there is none."""
    file = StateFile.open(path, identity(projection))
    return PartitionFold(projection, StateCodec(projection), file, journal=journal, **options)


def folded(projection: BaseProjection[Any], path: Path, records: Sequence[Record]) -> dict[bytes, bytes]:
    """All rows of a fold of these records at one go."""
    fold = fold_of(projection, path)
    fold.take(records)
    fold.flush()
    rows = everything(fold)
    fold.file.close()
    return rows


def everything(fold: PartitionFold[Any]) -> dict[bytes, bytes]:
    """All rows of its file, letters among them, without the ids of its last events."""
    return {key: value for key, value in fold.file.scan(b"") if not key.startswith(SEEN)}
