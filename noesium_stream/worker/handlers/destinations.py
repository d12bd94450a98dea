"""Destinations of the events that a handler makes: topic and partition."""

from __future__ import annotations

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import EventLog, Outgoing, outgoing
from noesium_stream.log.topics import partition_of, record_key, route


class Destinations:
    """Routes events to topics and partitions; each topic is looked up once.

    Args:
        log: the log that has the topics; missing topics are created.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._partitions: dict[str, int] = {}
        self._by_type: dict[str, tuple[str, int]] = {}

    def known(self, envelope: EventEnvelope) -> Outgoing | None:
        """Address an event if its topic is known already; None: call `of`."""
        place = self._by_type.get(envelope.event_type)
        if place is None or envelope.metadata:
            return None
        topic, count = place
        key = envelope.partition_key or record_key(envelope)
        return outgoing(envelope, topic, partition_of(key, count), key)

    def place_of(self, event_type: str) -> tuple[str, int] | None:
        """Return the usual topic of an event type, if known, and its number of partitions."""
        return self._by_type.get(event_type)

    async def of(self, envelope: EventEnvelope) -> Outgoing:
        """Address an event; look its topic up if necessary.

        Raises:
            EventValidationError: the event names an invalid agent type.
            LogUnavailableError: the log does not answer.
        """
        topic = route(envelope, self._log.topology)
        count = self._partitions.get(topic)
        if count is None:
            await self._log.ensure_topics([self._log.topology.spec(topic)])
            count = self._partitions[topic] = len(await self._log.end(topic))
        if not envelope.metadata:  # metadata may name another topic
            self._by_type[envelope.event_type] = (topic, count)
        key = record_key(envelope)
        return Outgoing(envelope, topic, partition_of(key, count), key)
