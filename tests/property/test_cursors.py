"""Cursors and `until` against a model, whatever was committed, aborted or truncated before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import LogTruncatedError
from noesium_stream.log.open import open_log
from noesium_stream.log.topics import Topology
from tests.support.events import catalogue, counted, outgoing

PARTITIONS = 2
CATALOGUE = catalogue()
partition = st.integers(0, PARTITIONS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), partition, st.integers(1, 4)),
        st.tuples(st.just("abort"), partition, st.integers(1, 4)),
        st.tuples(st.just("truncate"), partition, st.integers(0, 30)),
    ),
    max_size=12,
)
reads = st.tuples(
    st.dictionaries(partition, st.integers(0, 30)), st.dictionaries(partition, st.integers(0, 30))
)


@dataclass
class Model:
    """What lies in one partition: number by offset, and the first retained offset."""

    records: dict[int, int] = field(default_factory=dict)
    first: int = 0


@settings(max_examples=150, deadline=None)
@given(steps, reads, st.none() | st.integers(0, 1000))
def test_a_read_gives_what_lies_between_its_cursor_and_its_until(
    steps: list[tuple[str, int, int]], reads: tuple[dict[int, int], dict[int, int]], seed: int | None
) -> None:
    asyncio.run(check(steps, *reads, "" if seed is None else f"?seed={seed}"))


async def check(
    steps: list[tuple[str, int, int]], cursor: dict[int, int], wanted: dict[int, int], query: str
) -> None:
    log = await open_log(
        f"memory://{query}", topology=Topology("t", PARTITIONS), catalogue=CATALOGUE, clock=VirtualClock()
    )
    topic = log.topology.journal("demo")
    await log.ensure_topics([log.topology.spec(topic)])
    writer = await log.writer("w")
    models = [Model() for _ in range(PARTITIONS)]
    number = 0
    for what, place, amount in steps:
        model = models[place]
        if what == "truncate":
            await writer.close()
            writer = await log.writer("w")
            end = (await log.end(topic))[place]
            await log.truncate(topic, {place: amount})
            model.first = max(model.first, min(amount, end))
            model.records = {offset: n for offset, n in model.records.items() if offset >= model.first}
            continue
        events = [counted(number + n) for n in range(amount)]
        number += amount
        transaction = await writer.begin()
        await transaction.write(outgoing(events, topic, place))
        if what == "abort":
            await transaction.abort()
            continue
        for position, event in zip(await transaction.commit(), events, strict=True):
            model.records[position.offset] = event.payload["n"]
    await writer.close()
    await log.writer("w")
    end = await log.end(topic)
    assert await log.beginning(topic) == {place: model.first for place, model in enumerate(models)}
    until = {place: min(offset, end[place]) for place, offset in wanted.items()}
    expected = [
        (place, offset, n)
        for place in sorted(until)
        for offset, n in sorted(models[place].records.items())
        if cursor.get(place, 0) <= offset < until[place]
    ]
    below = [place for place in until if place in cursor and cursor[place] < models[place].first]
    seen = []
    truncated = None
    try:
        async for record in log.read(topic, cursor, until=until):
            seen.append((record.partition, record.offset, record.envelope.payload["n"]))
    except LogTruncatedError as error:
        truncated = error.partition
    if below:
        assert truncated in below
    else:
        assert (truncated, sorted(seen)) == (None, expected)
    await log.close()
