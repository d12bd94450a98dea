"""Repeated events: a program that does not know whether its event was appended appends it again.

An event is a repetition if the same partition has an event of the same id, from a producer of the same agent
id, at most `WINDOW` offsets before it. A handler drops it: it is neither handled nor folded. That is a pure
function of the partition, so every owner decides the same, and no state is kept for it: who takes a partition
over reads the `WINDOW` offsets before the place where it begins (`remember`).

The producer belongs to the identity: else anyone could take an event away from others by using its id first.
Journals are not looked at: their records are numbered, and written by their fenced owner alone.
"""

from __future__ import annotations

from typing import Final

from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.base import AnyProjection

WINDOW: Final = 4_000
"""Largest distance, in offsets, at which a repetition is dropped.

So many ids take about a megabyte for each partition, and a takeover reads them in a tenth of a second."""


class Repeats:
    """The ids of a partition's last events: those of the last `WINDOW` offsets, and some before them.

    Two tables take turns, so that old ids are dropped without a search. An identity is one string, because
    tuples would cost the garbage collector as much as all the rest; an event id has 36 characters.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._older: dict[str, int] = {}
        self._full_at = 0

    def is_repeat(self, event: EventEnvelope, offset: int) -> bool:
        """Whether an event repeats an earlier one; call it once for each event, in the order of offsets."""
        identity = event.event_id + event.producer.agent_id
        last = self._seen.get(identity) or self._older.get(identity)
        self._seen[identity] = offset + 1
        if offset >= self._full_at:
            self._seen, self._older, self._full_at = {}, self._seen, offset + WINDOW
        return last is not None and offset - last < WINDOW

    def __len__(self) -> int:
        return len(self._seen) + len(self._older)


async def remember(
    log: EventLog, place: TopicPartition, until: int, began: int, state: AnyProjection
) -> Repeats:
    """Read the ids of the events before `until` that a handler of this state has read or passed.

    Args:
        log: an open log.
        place: the partition.
        until: the offset at which it goes on.
        began: the offset at which the handler began; it has never read earlier events.
        state: the handler's projection; only events of its types count.
    """
    repeats, (topic, partition) = Repeats(), place
    first = max(began, until - WINDOW, (await log.beginning(topic))[partition])
    if first >= until:
        return repeats
    types = state.event_types
    keep = None if types is None else TypeFilter(types)
    async for batch in log.read_batches(
        topic, {partition: first}, until={partition: until}, types=types, partitions=[partition]
    ):
        for record in batch:
            try:
                event = record.envelope
            except CorruptRecordError:
                continue  # it was not handled either
            if keep is None or keep.keeps_name(event.event_type):
                repeats.is_repeat(event, record.offset)
            record.release()
    return repeats
