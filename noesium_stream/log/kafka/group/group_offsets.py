"""The offsets that a consumer group has committed: read and written by a member, on its thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.kafka.errors import PATIENCE_S, translated
from noesium_stream.log.port import TopicPartition

ASKING_S: Final = 5.0
"""Timeout for asking for the group's offset while a partition is being assigned."""

_RETRY_S: Final = 0.1


class GroupOffsets:
    """The next offsets of a group.

    Args:
        consumer: gives the client of the member, which may be replaced.
        bootstrap: the cluster's address, for error messages.
        closing: set when the member is being closed: then nothing is asked for again.
    """

    def __init__(self, consumer: Callable[[], Consumer], bootstrap: str, closing: threading.Event) -> None:
        self._consumer = consumer
        self._bootstrap = bootstrap
        self._closing = closing

    def offset(self, tp: TopicPartition) -> int:
        """The group's offset in a partition; the first retained one if it has none.

        Raises:
            EventStoreError: no broker has returned it in time, or this user lacks the right to ask.
        """
        try:
            [part] = self._committed([KafkaPartition(*tp)])
            if part.offset >= 0:
                return int(part.offset)
            return int(self._consumer().get_watermark_offsets(KafkaPartition(*tp), timeout=PATIENCE_S)[0])
        except KafkaException as error:
            raise translated(error, self._bootstrap, f"asking where the group is in {tp.topic}") from error

    def starts(self, parts: Sequence[KafkaPartition]) -> dict[TopicPartition, int]:
        """Where the group starts in these partitions. Does not wait for unavailable brokers."""
        try:
            found = self._committed(parts, ASKING_S) if parts else []
        except LogUnavailableError:
            # The client asks for them itself, and keeps asking.
            return {TopicPartition(part.topic, part.partition): OFFSET_STORED for part in parts}
        return {
            TopicPartition(part.topic, part.partition): part.offset if part.offset >= 0 else OFFSET_BEGINNING
            for part in found
        }

    def _committed(
        self, parts: Sequence[KafkaPartition], patience_s: float = PATIENCE_S
    ) -> list[KafkaPartition]:
        """The group's offsets. A starting broker may not know yet that it stores them.

        Raises:
            LogUnavailableError: no broker has returned them in time.
        """
        deadline = time.monotonic() + patience_s
        while True:
            try:
                found: list[KafkaPartition] = self._consumer().committed(list(parts), timeout=patience_s)
                failed = next((part.error for part in found if part.error is not None), None)
                if failed is None:
                    return found
                raise KafkaException(failed)
            except KafkaException as error:
                what = f"asking where the group is in {parts[0].topic}"
                told = translated(error, self._bootstrap, what)
                if not told.retriable or self._closing.is_set() or time.monotonic() > deadline:
                    raise told from error
            self._closing.wait(_RETRY_S)

    def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool) -> None:
        """Commit offsets for the group; a late commit does no harm (at least once).

        Raises:
            EventStoreError: this user lacks the right to commit.
        """
        parts = [KafkaPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        try:
            if wait:
                self._consumer().commit(offsets=parts, asynchronous=False)
            else:
                self._consumer().commit(offsets=parts, asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.GROUP_AUTHORIZATION_FAILED,
            ):
                raise translated(error, self._bootstrap, "committing the group's offsets") from error
