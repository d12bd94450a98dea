"""project, while topics come that it has not seen yet."""

from __future__ import annotations

import asyncio
from pathlib import Path

from noesium_stream.client import Client
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log.open import open_log
from tests.support.counting import SOURCE, Counting

LATER = """

class Later(DomainEvent, event_type="later.counted"):
    n: int


class Both(Sums):
    name = "both"
    events = (Counted, Later)
"""


class Later(DomainEvent, event_type="later.counted"):
    n: int


def test_a_new_topic_is_found_within_15_seconds_and_read_from_its_beginning(tmp_path: Path) -> None:
    folder = Counting(tmp_path)
    folder.add(range(100))
    folder.write(SOURCE + LATER)

    async def publish() -> None:
        async with Client(await open_log(folder.url)) as client:
            for n in range(10):
                await client.publish(Later(n=n), key="later")

    with folder.running("project", "counts:Both") as process:
        process.wait_for(lambda _: folder.run("state", "both", "k1").returncode == 0)
        asyncio.run(publish())
        process.wait_for(lambda _: folder.run("state", "both", "later").stdout == "45\n")
