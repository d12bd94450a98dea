"""Migration events: the positions from which a newer version folds a taken-over state (RFC-0004 §8.3).

A new version folds from the first event, unless a `projection.migrated` on the registry says otherwise. Then
the previous version (`previous_version`) folds everything before the event's positions, each row goes through
`migrate`, and the new version continues from there. So decisions made under the old rules stay as they were.
Since the positions are on the log, every process gets the same state, and so does every rebuild.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from noesium_stream.clock import Clock
from noesium_stream.errors import CorruptRecordError, ProjectionError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.standard import MigratedTopic, ProjectionMigrated
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.base import AnyProjection

_TYPE: Final = ProjectionMigrated.event_type()
_SAYS: Final = AgentRef("projections", "projections")


class Handover(NamedTuple):
    """The offset from which a version folds a partition, and the event that says so."""

    event_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class Migration:
    """The content of a `projection.migrated`."""

    event_id: str
    topics: Mapping[str, MigratedTopic]

    def at(self, tp: TopicPartition, topic_id: str) -> Handover | None:
        """The version's start in a partition; None if it starts at the first event."""
        topic = self.topics.get(tp.topic)
        if topic is None or topic.topic_id != topic_id:
            return None
        offset = topic.offsets.get(str(tp.partition), 0)
        return Handover(self.event_id, offset) if offset else None


async def migration_of(log: EventLog, projection: AnyProjection) -> Migration | None:
    """The migration by which this version begins; None if it folds from the first event.

    Raises:
        ProjectionError: the log names another previous version than the code.
        LogUnavailableError
    """
    if projection.previous_version is None:
        return None
    event = await _first_event(log, projection)
    if event is None:
        return None
    said = ProjectionMigrated.model_validate(event.payload)
    if said.from_version != projection.previous_version.version:
        raise ProjectionError(
            f"The log says that {projection.name} v{projection.version} takes over from "
            f"v{said.from_version}, and its code that it does from v{projection.previous_version.version}.",
            hint=f"Let `previous_version` be version {said.from_version}, or count `version` up.",
        )
    return Migration(event.event_id, said.topics)


async def _first_event(log: EventLog, projection: AnyProjection) -> EventEnvelope | None:
    topic = log.topology.registry
    if topic not in await log.layout():
        return None
    batches = log.read_batches(topic, {}, until=await log.end(topic), types=(_TYPE,))
    try:
        async for batch in batches:
            for record in batch:
                try:
                    payload = record.envelope.payload
                except CorruptRecordError:
                    continue  # anyone may write there: it says nothing, and hides nothing
                if (payload["projection"], payload["to_version"]) == (projection.name, projection.version):
                    return record.envelope
    finally:
        if isinstance(batches, AsyncGenerator):
            await batches.aclose()
    return None


async def migration_now(log: EventLog, projection: AnyProjection, topics: Iterable[str]) -> Migration:
    """A migration at the current ends of these topics; it is not on the log yet."""
    layout = await log.layout()
    found = {}
    for topic in topics:
        ends = await log.end(topic)
        offsets = {str(partition): end for partition, end in sorted(ends.items())}
        found[topic] = MigratedTopic(topic_id=layout[topic].topic_id, offsets=offsets)
    return Migration("", found)


async def say(log: EventLog, projection: AnyProjection, migration: Migration, clock: Clock) -> None:
    """Append a migration to the log.

    Raises:
        LogUnavailableError, CommitUnknownError
    """
    assert projection.previous_version is not None
    event = ProjectionMigrated(
        projection=projection.name,
        from_version=projection.previous_version.version,
        to_version=projection.version,
        topics=dict(migration.topics),
    )
    await log.append([root_event(event, _SAYS, clock, partition_key=projection.name)])
