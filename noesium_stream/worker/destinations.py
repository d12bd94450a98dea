"""Where an event that a handler has made goes."""

from __future__ import annotations

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog, Outgoing, outgoing
from noesium_stream.log.topics import partition_of, record_key, route


class Destinations:
    """Routes events to topics and partitions, which are looked up once.

    Args:
        log: where the topics are; what is missing is made.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._partitions: dict[str, int] = {}
        self._by_type: dict[str, tuple[str, int]] = {}

    def known(self, envelope: EventEnvelope) -> Outgoing | None:
        """An event as a writer takes it; None where it takes `of` to find out."""
        place = self._by_type.get(envelope.event_type)
        if place is None or envelope.metadata:
            return None
        topic, count = place
        key = envelope.partition_key or record_key(envelope)
        return outgoing(envelope, topic, partition_of(key, count), key)

    def place_of(self, event_type: str) -> tuple[str, int] | None:
        """Where events of a type go that say no other place: the topic, and how many partitions it has."""
        return self._by_type.get(event_type)

    async def of(self, envelope: EventEnvelope) -> Outgoing:
        """An event as a writer takes it.

        Raises:
            EventValidationError: it names no agent type that there may be.
            LogUnavailableError: nobody answers.
        """
        topic = route(envelope, self._log.topology)
        count = self._partitions.get(topic)
        if count is None:
            await self._log.ensure_topics([self._log.topology.spec(topic)])
            count = self._partitions[topic] = len(await self._log.end(topic))
        if not envelope.metadata:  # which may say another place
            self._by_type[envelope.event_type] = (topic, count)
        key = record_key(envelope)
        return Outgoing(envelope, topic, partition_of(key, count), key)
