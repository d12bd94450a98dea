"""Migration events: from which positions on a newer version folds, which takes over a state (RFC-0004 §8.3).

A new version is folded from the first event, unless a `projection.migrated` on the registry says otherwise.
Then what lies before its positions is folded by the version before (`BaseProjection.before`), each row goes
through `migrate`, and the new version goes on from there. So what was decided under the old rules stays
decided by them; and since the positions are on the log, the state comes out the same whoever folds it, and
however often it is made anew.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from noesium_stream.clock import Clock
from noesium_stream.errors import ProjectionError
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import MigratedTopic, ProjectionMigrated
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.base import AnyProjection

_TYPE: Final = ProjectionMigrated.event_type()
_SAYS: Final = AgentRef("projections", "projections")


class Handover(NamedTuple):
    """From which offset of a partition a version folds, and by which event."""

    event_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class Migration:
    """What one `projection.migrated` says."""

    event_id: str
    topics: Mapping[str, MigratedTopic]

    def at(self, tp: TopicPartition, topic_id: str) -> Handover | None:
        """Where the version begins in a partition; None: at its first event."""
        topic = self.topics.get(tp.topic)
        if topic is None or topic.topic_id != topic_id:
            return None
        offset = topic.offsets.get(str(tp.partition), 0)
        return Handover(self.event_id, offset) if offset else None


async def migration_of(log: EventLog, projection: AnyProjection) -> Migration | None:
    """What the log says of this version's beginning; None where it is folded from the first event.

    Raises:
        ProjectionError: the log names another version before it than its code does.
        LogUnavailableError
    """
    if projection.before is None:
        return None
    event = await _first_event(log, projection)
    if event is None:
        return None
    said = ProjectionMigrated.model_validate(event.payload)
    if said.from_version != projection.before.version:
        raise ProjectionError(
            f"The log says that {projection.name} v{projection.version} takes over from "
            f"v{said.from_version}, and its code that it does from v{projection.before.version}.",
            hint=f"Let `before` be version {said.from_version}, or count `version` up.",
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
                payload = record.envelope.payload
                if (payload["projection"], payload["to_version"]) == (projection.name, projection.version):
                    return record.envelope
    finally:
        if isinstance(batches, AsyncGenerator):
            await batches.aclose()
    return None


async def migration_now(log: EventLog, projection: AnyProjection, topics: Iterable[str]) -> Migration:
    """One whose positions are the ends of these topics; it is not on the log yet."""
    layout = await log.layout()
    found = {}
    for topic in topics:
        ends = await log.end(topic)
        offsets = {str(partition): end for partition, end in sorted(ends.items())}
        found[topic] = MigratedTopic(topic_id=layout[topic].topic_id, offsets=offsets)
    return Migration("", found)


async def say(log: EventLog, projection: AnyProjection, migration: Migration, clock: Clock) -> None:
    """Put a migration on the log.

    Raises:
        LogUnavailableError, CommitUnknownError
    """
    assert projection.before is not None
    event = ProjectionMigrated(
        projection=projection.name,
        from_version=projection.before.version,
        to_version=projection.version,
        topics=dict(migration.topics),
    )
    trace = TraceContext(clock.token(16), clock.token(8))
    await log.append([event.to_envelope(_SAYS, trace, partition_key=projection.name, clock=clock)])
