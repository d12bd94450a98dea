"""Batches of wanted messages, read from a consumer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import Final

from confluent_kafka import Consumer, KafkaError

from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.kafka.bounded_reader import poll_batch
from noesium_stream.log.kafka.messages import Batch, Message, sieve
from noesium_stream.log.record import Decoder

_MOST: Final = 1_000
"""Messages taken at once: switching to the handler takes as long as folding 50 events."""
_MOST_SIFTED: Final = 5_000
_SIFTED_AT_ONCE: Final = 200
"""Unwanted messages die young: reusing the memory of earlier ones saves a third of the time."""


class BatchReader:
    """Reads the batches of a group member, on its thread.

    Args:
        keep: selects the wanted messages; None: all of them.
        decoder: the log's decoder.
        mine: the assigned partitions at any time.
        failed: called with errors other than the end of a partition; may raise.

    Attributes:
        batch: the batch that is being read, or was read last.
    """

    def __init__(
        self,
        keep: TypeFilter | None,
        decoder: Decoder,
        mine: Container[tuple[str, int]],
        failed: Callable[[KafkaError, Message], None],
    ) -> None:
        self._decoder = decoder
        self._mine = mine
        self._failed = failed
        self._sieve = sieve(keep, decoder)
        self._most, self._at_once = (_MOST, _MOST) if keep is None else (_MOST_SIFTED, _SIFTED_AT_ONCE)
        self._held: list[Message] = []
        self.batch = Batch((), failed)

    def read(self, consumer: Consumer, first_s: float, more_s: float) -> Batch:
        """Read wanted messages, some at a time, until none is left or the limit is reached.

        Args:
            consumer: the client.
            first_s: how long to wait for the first message.
            more_s: how long to wait for each of the following ones.
        """
        batch = self.batch = Batch(self._mine, self._failed)
        held, self._held = self._held, []
        left = self._most
        messages = held or poll_batch(consumer, first_s, more_s, most=self._at_once)
        while messages:
            batch.take(messages, self._sieve, self._decoder)
            count = len(messages)
            left -= count
            batch.full = left <= 0 or len(batch.records) >= _MOST
            if held or count < self._at_once or batch.full:
                break
            messages.clear()  # before new ones are made, which reuse the memory
            messages = consumer.consume(self._at_once, more_s)
        return batch

    def hold(self, message: Message) -> None:
        """Hold a message back for the next batch."""
        self._held.append(message)

    def forget(self, gone: Collection[tuple[str, int]]) -> None:
        """Remove the messages of these partitions, those held back and those of the batch."""
        self._held = [m for m in self._held if (m.topic(), m.partition()) not in gone]
        self.batch.forget(gone)
