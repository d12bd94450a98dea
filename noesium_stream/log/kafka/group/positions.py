"""The positions of a member's partitions, and the seeks that its thread has not carried out yet.

The thread of the member moves the positions. The event loop reads them and seeks. The lock makes a seek and
its end one step each: no reader sees a position between them, and no partition is sought after it is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from confluent_kafka import OFFSET_BEGINNING

from noesium_stream.log.port import TopicPartition
from noesium_stream.log.record import Record


class Positions:
    """The next offset to handle of each assigned partition.

    Attributes:
        offsets: the next offset by assigned partition; a negative one is resolved by the client.
        after: the offsets after the batch that is being handled, of partitions that are still assigned.
    """

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self.after: dict[TopicPartition, int] = {}
        self._seeks: dict[TopicPartition, int] = {}
        self._lock = threading.Lock()

    def position(self, tp: TopicPartition) -> int | None:
        """The next offset of a partition, as sought; None if it is not known."""
        with self._lock:
            found = self._seeks.get(tp, self.offsets.get(tp, OFFSET_BEGINNING))
        return found if found >= 0 else None

    def seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """Ask the thread to continue at other offsets; partitions that are not assigned are ignored."""
        with self._lock:
            self._seeks.update({tp: offset for tp, offset in starts.items() if tp in self.offsets})

    def take_seeks(self) -> dict[TopicPartition, int]:
        """Move to the sought offsets; return them."""
        with self._lock:
            seeks, self._seeks = self._seeks, {}
            self.offsets.update(seeks)
        return seeks

    def without_sought(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records of partitions in which no other offset is sought."""
        if self._seeks:
            records = [r for r in records if TopicPartition(r.topic, r.partition) not in self._seeks]
        return records

    def advance(self) -> None:
        """Move past the batch that was being handled."""
        self.offsets.update(self.after)

    def drop(self, gone: frozenset[TopicPartition]) -> None:
        """Remove partitions, all of them assigned until now, and what is sought in them."""
        with self._lock:
            for tp in gone:
                del self.offsets[tp]
                self._seeks.pop(tp, None)
                self.after.pop(tp, None)
