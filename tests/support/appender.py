"""A program of its own that writes to a log until it is done, or killed; it prints what was acknowledged.

    python -m tests.support.appender append URL TOPIC KEY FIRST COUNT
    python -m tests.support.appender commit URL TOPIC PARTITION FIRST COUNT BATCH [OTHER_TOPIC]
    python -m tests.support.appender member URL TOPIC GROUP

`append` appends one event after the other, `commit` commits batches as the writer `crash`; each prints a
line per acknowledgement, flushed before the next is begun. `member` joins a group and prints a line per
assignment and per record until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.log.record import Record
from tests.support.events import catalogue, counted, outgoing


def say(*words: object) -> None:
    print(*words, flush=True)


async def append(log: EventLog, topic: str, key: str, first: str, count: str) -> None:
    say("ready")
    for n in range(int(first), int(first) + int(count)):
        await log.append([counted(n, key)], topic=topic)
        say(n)


async def commit(
    log: EventLog, topic: str, partition: str, first: str, count: str, batch: str, other: str | None = None
) -> None:
    writer = await log.writer("crash")
    say("ready")
    for number in range(int(first), int(first) + int(count)):
        events = [counted(number, "run", text=f"{i}/{batch} {'x' * 200}") for i in range(int(batch))]
        records = outgoing(events, topic, int(partition))
        if other is not None:
            records += outgoing(events, other, int(partition))
        await writer.commit(records)
        say(number)


async def member(log: EventLog, topic: str, group: str) -> None:
    async def handle(records: Sequence[Record]) -> None:
        for record in records:
            say("record", record.envelope.payload["n"])

    async def on_assigned(partitions: frozenset[TopicPartition]) -> None:
        say("assigned", *sorted(tp.partition for tp in partitions))

    subscription = await log.subscribe(group, [topic], handle, on_assigned=on_assigned)
    say("ready")
    await subscription.wait()


PROGRAMS: dict[str, Callable[..., Awaitable[None]]] = {"append": append, "commit": commit, "member": member}


async def main(what: str, url: str, *arguments: str) -> None:
    log = await open_log(url, catalogue=catalogue())
    try:
        await PROGRAMS[what](log, *arguments)
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
