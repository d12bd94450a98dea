"""A folder with projections of `demo.counted`, as their author would write them, for real commands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from noesium_stream.log.open import open_log
from noesium_stream.log.port import Position
from tests.support.command import Folder
from tests.support.events import catalogue, counted

SOURCE = '''
from noesium_stream import BaseProjection, DomainEvent, EventEnvelope


class Counted(DomainEvent, event_type="demo.counted"):
    n: int
    text: str = ""


class Sums(BaseProjection[int]):
    """The sum of each key's numbers."""

    name = "sums"
    version = 1
    events = (Counted,)
    topics = ("events.*",)

    def initial_state(self) -> int:
        return 0

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def apply(self, state: int, event: EventEnvelope) -> int | None:
        if event.payload["n"] < 0:
            raise ValueError(f"{event.payload['n']} is negative")
        return state + event.payload["n"]


class Total(BaseProjection[dict[str, int]]):
    """One state for all."""

    name = "total"
    events = (Counted,)
    topics = ("events.*",)

    def initial_state(self) -> dict[str, int]:
        return {"n": 0}

    def apply(self, state: dict[str, int], event: EventEnvelope) -> dict[str, int]:
        return {"n": state["n"] + event.payload["n"]}

    def merge(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        return {"n": a["n"] + b["n"]}


class BadName(Sums):
    name = "Bad Name"


NOTHING = 7
'''

TOPIC = "noesium.events.demo"


class Counting(Folder):
    """Commands on a log of four partitions; `counts.py` has the projections."""

    def __init__(self, path: Path, **env: str) -> None:
        self.url = f"sqlite:///{path}/log.db?partitions=4"
        super().__init__(path, NOESIUM_LOG=self.url, NOESIUM_HOME=str(path / "home"), **env)
        self.write(SOURCE)

    def write(self, source: str) -> None:
        """The projections' module, as it is from now on."""
        (self.path / "counts.py").write_text(source, encoding="utf-8")

    def change(self, old: str, new: str) -> None:
        """Edit it."""
        source = (self.path / "counts.py").read_text(encoding="utf-8")
        assert old in source
        self.write(source.replace(old, new))

    def add(self, numbers: Iterable[int], keys: int = 10, key: str | None = None) -> list[Position]:
        """Append numbers; each goes to the key that it ends on, or to one key."""

        async def append() -> list[Position]:
            log = await open_log(self.url, catalogue=catalogue())
            try:
                return await log.append([counted(n, key or f"k{n % keys}") for n in numbers])
            finally:
                await log.close()

        return asyncio.run(append())

    @property
    def states(self) -> Path:
        """Where the states of this log are."""
        [found] = (self.path / "home" / "projections").iterdir()
        return found

    def files(self, name: str = "sums", version: int = 1) -> list[Path]:
        """The state files of a projection."""
        return sorted((self.states / name / f"v{version}").glob("*.state"))


def sums(numbers: Iterable[int], keys: int = 10) -> dict[str, int]:
    """What `Sums` makes of `Counting.add`."""
    found: dict[str, int] = {}
    for n in numbers:
        found[f"k{n % keys}"] = found.get(f"k{n % keys}", 0) + n
    return found
