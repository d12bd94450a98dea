"""The settings of the client of a group member."""

from __future__ import annotations

from typing import Any, Final

from noesium_stream.log.kafka.bounded_reader import consumer_config
from noesium_stream.log.kafka.settings import KafkaSettings

SESSION_MS: Final = 6_000
"""A member that sends no heartbeat for this long loses its partitions."""

HEARTBEAT_MS: Final = 1_000

_REFRESH_MS: Final = 5_000
"""A member that joins while no partition has a leader gets none; the client looks again when it refreshes its
metadata, by default after five minutes."""
# Half a million keys folded from eight partitions take +35 MB, or +42 MB if twice as much is fetched from
# each at once; the defaults took +170 MB at the same speed.
_PREFETCH: Final = {
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 5_000,
    "fetch.message.max.bytes": 131_072,
    "fetch.max.bytes": 2_097_152,
    "fetch.queue.backoff.ms": 2,
}


def member_config(settings: KafkaSettings, group: str, member: str) -> dict[str, Any]:
    """librdkafka's settings for a member of a group."""
    return {
        **consumer_config(settings, group),
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "client.id": member,
        "topic.metadata.refresh.interval.ms": _REFRESH_MS,
        **_PREFETCH,
    }
