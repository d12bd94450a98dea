"""Owners and status of partitions, from the consumer group's table and the workers' heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from noesium_stream.clock import Clock
from noesium_stream.errors import CorruptRecordError, TopicNotFoundError
from noesium_stream.event.standard import AgentHeartbeat
from noesium_stream.log.generations import generations_in
from noesium_stream.log.port import EventLog, TopicPartition, process_of

MISSED: Final = 3
"""Number of intervals without a heartbeat after which a worker's last one is not used any more."""
_LOOKED_AT: Final = 5_000
"""How far back heartbeats are searched, in offsets of a partition."""


@dataclass(frozen=True, slots=True)
class OwnedPartition:
    """A partition that agents of a type read.

    Attributes:
        topic: the agent type's inbox, or a topic that a handler reads.
        owner: the owning process, `host/pid`; None: the partition has no owner now.
        epoch: epoch of its writer, which grows with each owner; None: the owner is taking the partition, or
            has sent no heartbeat for three intervals; so for the fields that follow.
        lag: inbox offsets that the owner has not dealt with; on Kafka this counts the transaction markers of
            agents that write to the inbox.
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
    beats, layout = await _last_beats(log, clock.now_ms()), await log.layout()
    now, found = clock.now_ms(), []
    for agent_type in sorted(agent_types):
        inbox = log.topology.inbox(agent_type)
        shares = await log.members(log.topology.workers(agent_type))
        members = {process_of(share.member) for share in shares}
        owners = {place: process_of(share.member) for share in shares for place in share.partitions}
        ends: dict[TopicPartition, int] = {}
        later = {one.inbox for one in generations_in(layout, log.topology, agent_type)[1:]}
        for topic in sorted(({place.topic for place in owners} or {inbox}) | later):
            with suppress(TopicNotFoundError):  # a handler has no inbox
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
            if beat is None or status is None:
                found.append(OwnedPartition(agent_type, *place, owner, None, None, None, None, None))
                continue
            if status.get("stopped") is not None:
                found.append(
                    OwnedPartition(
                        agent_type,
                        *place,
                        owner,
                        epoch=None,
                        lag=None,
                        open_runs=None,
                        oldest_step=None,
                        instance_id=beat["instance_id"],
                        stopped=status["stopped"],
                    )
                )
                continue
            oldest = status.get("oldest_step_ms")
            found.append(
                OwnedPartition(
                    agent_type,
                    *place,
                    owner,
                    status["epoch"],
                    max(0, end - status["next_offset"]),
                    status["open_runs"],
                    None if oldest is None else timedelta(milliseconds=max(0, now - oldest)),
                    beat["instance_id"],
                    status.get("parked", 0),
                    tuple(status.get("waits_for", ())),
                    _carrying(beats, agent_type, members, status.get("waits_for", ())),
                )
            )
    return found


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


async def _last_beats(log: EventLog, now_ms: int) -> list[dict[str, Any]]:
    """Read the last heartbeat of each live worker; of one process the newest comes last.

    Anyone may write heartbeats: a record that is none is passed over.
    """
    topic = log.topology.heartbeat
    try:
        ends, firsts = await log.end(topic), await log.beginning(topic)
    except TopicNotFoundError:
        return []
    cursor = {partition: max(firsts[partition], end - _LOOKED_AT) for partition, end in ends.items()}
    last: dict[str, tuple[int, dict[str, Any]]] = {}
    async for record in log.read(topic, cursor, until=ends, types=(AgentHeartbeat.TYPE,)):
        try:
            event = record.envelope
        except CorruptRecordError:
            continue
        last[f"{event.payload['instance_id']} {event.payload['agent_type']}"] = (
            event.timestamp_ms,
            event.payload,
        )
    return [
        beat
        for written_ms, beat in sorted(last.values(), key=lambda one: one[0])
        if now_ms - written_ms <= MISSED * beat["interval_ms"]
    ]
