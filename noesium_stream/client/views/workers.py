"""Owners and status of partitions, from the consumer group's table and the workers' heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from noesium_stream.client.views.lag import handled_topics, lag_without_owner
from noesium_stream.clock import Clock
from noesium_stream.errors import TopicNotFoundError
from noesium_stream.log.generations import generations_in
from noesium_stream.log.port import EventLog, TopicPartition, process_of
from noesium_stream.worker.heartbeats import last_heartbeats

MISSED: Final = 3
"""Number of intervals without a heartbeat after which a worker's last one is not used any more."""


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """A partition that agents of a type read.

    Attributes:
        topic: the agent type's inbox, or a topic that a handler reads.
        owner: the owning process, `host/pid`; None: the partition has no owner now.
        epoch: epoch of its writer, which grows with each owner; None: the owner is taking the partition, or
            has sent no heartbeat for three intervals; so for the fields that follow.
        lag: inbox offsets that the owner has not dealt with; on Kafka this counts the transaction markers of
            agents that write to the inbox. Without an owner it is read from the journal: so many at most.
        open_runs: number of open runs, including those that only wait.
        oldest_step: longest time for which a working run has journaled nothing.
        instance_id: id of the owner's instance.
        held_up: number of runs that are stranded and requests that are deferred, together.
        waits_for: some of the versions and schemas that they wait for.
        carried_by: other live processes that carry a version that is waited for.
        stopped: why its owner does not work on it until the worker is started again; None: it does.
    """

    agent_type: str
    topic: str
    partition: int
    owner: str | None
    epoch: int | None
    lag: int | None
    open_runs: int | None
    oldest_step: timedelta | None
    instance_id: str | None
    held_up: int = 0
    waits_for: tuple[str, ...] = ()
    carried_by: tuple[str, ...] = ()
    stopped: str | None = None


async def owned_partitions(log: EventLog, clock: Clock, agent_types: Iterable[str]) -> list[OwnedPartition]:
    """List the partitions of these agent types, in order.

    Raises `LogUnavailableError`.
    """
    beats, layout = await live_heartbeats(log, clock.now_ms()), await log.layout()
    now, found = clock.now_ms(), []
    for agent_type in sorted(agent_types):
        inbox = log.topology.inbox(agent_type)
        shares = await log.members(log.topology.workers(agent_type))
        members = {process_of(share.member) for share in shares}
        owners = {place: process_of(share.member) for share in shares for place in share.partitions}
        ends: dict[TopicPartition, int] = {}
        later = {one.inbox for one in generations_in(layout, log.topology, agent_type)[1:]}
        topics = {place.topic for place in owners} | later
        if not topics:  # a handler has no inbox
            topics = {inbox} if inbox in layout else await handled_topics(log, agent_type)
        for topic in sorted(topics):
            with suppress(TopicNotFoundError):
                for partition, end in (await log.end(topic)).items():
                    ends[TopicPartition(topic, partition)] = end
        said = {
            (beat.get("process"), status.get("topic") or inbox, status["partition"]): (beat, status)
            for beat in beats
            if beat["agent_type"] == agent_type
            for status in beat.get("partitions") or ()
        }
        for place, end in sorted(ends.items()):
            owner = owners.get(place)
            beat, status = said.get((owner, *place), (None, None))
            if owner is None:
                lag = await lag_without_owner(log, agent_type, place, end)
                found.append(_silent(agent_type, place, None, lag=lag))
            elif beat is None or status is None:
                found.append(_silent(agent_type, place, owner))
            elif status.get("stopped") is not None:
                said_by = beat["instance_id"]
                found.append(_silent(agent_type, place, owner, said_by, stopped=status["stopped"]))
            else:
                carried_by = _carrying(beats, agent_type, members, status.get("waits_for", ()))
                found.append(_at_work(agent_type, place, owner, beat, status, end, now, carried_by))
    return found


def _silent(
    agent_type: str,
    place: TopicPartition,
    owner: str | None,
    instance_id: str | None = None,
    *,
    lag: int | None = None,
    stopped: str | None = None,
) -> OwnedPartition:
    """Make the entry of a partition at which nobody works, or whose owner has not reported."""
    return OwnedPartition(
        agent_type, *place, owner, None, lag, None, None, instance_id=instance_id, stopped=stopped
    )


def _at_work(
    agent_type: str,
    place: TopicPartition,
    owner: str,
    beat: Mapping[str, Any],
    status: Mapping[str, Any],
    end: int,
    now_ms: int,
    carried_by: tuple[str, ...],
) -> OwnedPartition:
    """Make the entry of a partition from its owner's heartbeat."""
    oldest = status.get("oldest_step_ms")
    return OwnedPartition(
        agent_type,
        *place,
        owner,
        status["epoch"],
        max(0, end - status["next_offset"]),
        status["open_runs"],
        None if oldest is None else timedelta(milliseconds=max(0, now_ms - oldest)),
        beat["instance_id"],
        status.get("parked", 0),
        tuple(status.get("waits_for", ())),
        carried_by,
    )


def _carrying(
    beats: Iterable[Mapping[str, Any]], agent_type: str, members: Collection[str], wanted: Collection[str]
) -> tuple[str, ...]:
    return tuple(
        str(beat["process"])
        for beat in beats
        if beat["agent_type"] == agent_type
        and beat.get("process") in members
        and any(one in wanted for one in beat.get("versions") or ())
    )


async def live_heartbeats(log: EventLog, now_ms: int) -> list[dict[str, Any]]:
    """Read the last heartbeat of each live worker; of one process the newest comes last."""
    return [
        beat
        for written_ms, beat in await last_heartbeats(log)
        if now_ms - written_ms <= MISSED * beat["interval_ms"]
    ]
