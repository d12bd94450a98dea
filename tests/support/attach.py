"""Projections of the tests' own, and a program that attaches one until it is killed or told to end.

    python -m tests.support.attach URL FOLDER [SLOW_US]

It prints `ready` when it has joined, and `has N…` when its partitions change; SIGTERM ends it well. With
SLOW_US each event takes so many microseconds longer.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noesium_stream.errors import StateFileError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.projection.state.state_file import StateFile
from tests.support.events import catalogue


class Numbers(BaseProjection[list[int]]):
    """The numbers of a key's events, in order: what is folded twice, or not, or out of order, shows."""

    name = "numbers"
    topics = ("events.*",)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> list[int]:
        return []

    def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
        return [*state, event.payload["n"]]


class Sums(BaseProjection[int]):
    """Of all numbers by what they end on, whatever their partition: the parts have to be merged."""

    name = "sums"
    topics = ("events.*",)

    def key(self, event: EventEnvelope) -> str | None:
        return str(event.payload["n"] % 10)

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["n"])

    def merge(self, a: int, b: int) -> int:
        return a + b


def cursors_in(*folders: Path) -> dict[tuple[str, int], int]:
    """How far each partition was folded and written by whoever is the furthest."""
    found: dict[tuple[str, int], int] = {}
    for folder in folders:
        for path in folder.rglob("*.state"):
            try:
                file = StateFile.open_to_read(path)
            except StateFileError:
                continue  # it is being made
            manifest = file.manifest
            file.close()
            tp = manifest.identity.topic, manifest.identity.partition
            found[tp] = max(found.get(tp, 0), manifest.cursor)
    return found


def rows_in(*folders: Path) -> dict[str, list[int]]:
    """The rows of `Numbers` in these folders; of a partition that several have, those of the newest."""
    codec = StateCodec(Numbers())
    newest: dict[tuple[str, int], StateFile] = {}
    files = [StateFile.open_to_read(path) for folder in folders for path in folder.rglob("*.state")]
    try:
        for file in sorted(files, key=lambda file: file.manifest.cursor):
            newest[file.manifest.identity.topic, file.manifest.identity.partition] = file
        return {
            key[1:].decode(): codec.decode(value)
            for file in newest.values()
            for key, value in file.scan(b"s")
        }
    finally:
        for file in files:
            file.close()


async def main(url: str, folder: str, slow_us: str = "0") -> None:
    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        time.sleep(int(slow_us) / 1_000_000)
        return function(*arguments)

    log = await open_log(url, catalogue=catalogue())
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    before: frozenset[object] | None = None
    async with AttachedProjection(log, Numbers(), Path(folder), call=call, discover_interval=0.2) as attached:
        print("ready", flush=True)
        ended = asyncio.create_task(attached.wait())
        while not ending.is_set() and not ended.done():
            if attached.assignment != before:
                before = attached.assignment
                print("has", *sorted(tp.partition for tp in attached.assignment), flush=True)
            await asyncio.sleep(0.01)
    await ended
    await log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
