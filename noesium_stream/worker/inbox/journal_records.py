"""Journal records of decisions that concern no open run: dead letters, deferred and forwarded requests."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Final

from noesium_stream.errors import CorruptRecordError, NoesiumError, brief
from noesium_stream.event.standard import (
    EventValidationFailed,
    RequestForwarded,
    RequestParked,
    RequestResumed,
)
from noesium_stream.log.headers import CE_TYPE, LOGGED, ORIGIN, SOURCE, header_value
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.log.sender_proof import copied
from noesium_stream.log.topics import partition_of
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.decide import FOR_RUNS
from noesium_stream.worker.runs.time_to_live import logged_ms
from noesium_stream.worker.state.partition_state import texts_of

QUOTED_BYTES: Final = 500_000
"""Bytes of a record that a dead letter quotes: in base64 more would not fit into a record itself."""

PART_BYTES: Final = 600_000
"""Bytes of a deferred record in one journal event: in base64 more would not fit."""

REASON_LENGTH: Final = 2_000
"""Characters of the reason in a dead letter: it may quote texts of the record, of whatever length."""

HEADER_BYTES: Final = 16_384
"""Upper bound of a deferred record's headers: as JSON more would not fit beside it."""


def position_of(record: Record) -> Position:
    """Position of a record."""
    return Position(record.topic, record.partition, record.offset)


def place_of(record: Record | Position) -> str:
    """Position of a record, as people and headers have it."""
    return f"{record.topic}/{record.partition}/{record.offset}"


def source_of(record: Record | Position) -> tuple[str, bytes]:
    """Header that names the inbox record on which a journal record decides."""
    return SOURCE, place_of(record).encode()


def dead_letter(
    context: PartitionContext,
    record: Record,
    error: NoesiumError,
    origin: Position | None = None,
    topic_id: str | None = None,
) -> list[Outgoing]:
    """The record in the dead-letter topic, and a journal record that decides on it; for one commit.

    Args:
        context: of the partition.
        record: what is wrong.
        error: why.
        origin: where it came in, if that is not its own position.
        topic_id: id of the record's topic.
    """
    came_in = origin or position_of(record)
    reason = brief(error, REASON_LENGTH)
    trace_of = [f"{type(error).__name__}: {reason}"]
    quoted = record.value[:QUOTED_BYTES]
    if len(quoted) < len(record.value):
        trace_of.append(f"only {len(quoted)} of the record's {len(record.value)} bytes are quoted here")
    event = EventValidationFailed(
        failure_reason=reason,
        validation_trace=trace_of,
        topic=came_in.topic,
        partition=came_in.partition,
        offset=came_in.offset,
        topic_id=topic_id if came_in.topic == record.topic else None,
        record_base64=base64.b64encode(quoted).decode(),
        whole=len(quoted) == len(record.value),
    )
    journaled = context.record(event, (source_of(record),))
    letter = Outgoing(journaled.envelope, context.log.topology.dlq, 0, context.key)
    return [letter, journaled]


def deferred(
    context: PartitionContext, record: Record, reason: str, origin: Position | None = None
) -> list[Outgoing]:
    """Journal records that keep a request: one event, or several parts of it, for one commit.

    `origin` is where it came in, if that is not its own position.
    """
    came_in = origin or position_of(record)
    values = list(_parts(record.value))
    events = [
        RequestParked(
            run_id=record.key,
            request_type=_type_of(record),
            reason=reason,
            topic=came_in.topic,
            partition=came_in.partition,
            offset=came_in.offset,
            logged_ms=record.timestamp_ms,
            headers=texts_of(record.headers),
            record_base64=base64.b64encode(value).decode(),
            part=number,
            parts=len(values),
        )
        for number, value in enumerate(values)
    ]
    # An inbox position once: a request that is deferred anew has been decided on before.
    source = (source_of(record),) if origin is None else ()
    return [context.record(event, source if event.part == 0 else ()) for event in events]


def resumed(context: PartitionContext, run_id: str, offsets: Sequence[int], refused: str | None) -> Outgoing:
    """Journal record that takes deferred requests up; `refused`: why one of them is a dead letter."""
    return context.record(RequestResumed(run_id=run_id, offsets=list(offsets), refused=refused))


def forwarded(context: PartitionContext, record: Record, partitions: int) -> list[Outgoing]:
    """A request for the next generation, which has so many partitions, and the journal record of that."""
    event = record.envelope
    said = RequestForwarded(
        agent_type=context.agent_type,
        run_id=record.key,
        request_type=event.event_type,
        request_event_id=event.event_id,
        generation=context.generation + 1,
        partitions=partitions,
    )
    inbox = context.log.topology.inbox(context.agent_type, context.generation + 1)
    return [
        handed_on(record, inbox, partitions),
        context.record(said, (source_of(record),), trace=event.trace, causation_id=event.event_id),
    ]


def handed_on(record: Record, inbox: str, partitions: int) -> Outgoing:
    """The same request for an inbox, which has so many partitions, with its sender's own proof."""
    event, origin = record.envelope, record.header(ORIGIN)
    headers = [] if origin is None else [(ORIGIN, origin)]
    if event.ttl_ms is not None:
        headers.append((LOGGED, str(logged_ms(record)).encode()))
    copy, proof = copied(event, record)
    partition = partition_of(record.key, partitions)
    return Outgoing(copy, inbox, partition, record.key, (*headers, *proof))


def may_be_command(record: Record) -> bool:
    """Whether a record may start a run: it is not known to be a request for an open one."""
    return _type_of(record) not in FOR_RUNS


def is_deferrable(record: Record) -> bool:
    """Whether a journal event can keep the record's headers."""
    return sum(len(name) + len(value or b"") for name, value in record.headers) <= HEADER_BYTES


def _parts(value: bytes) -> Iterator[bytes]:
    yield value[:PART_BYTES]
    for start in range(PART_BYTES, len(value), PART_BYTES):
        yield value[start : start + PART_BYTES]


def _type_of(record: Record) -> str | None:
    said = header_value(record.raw_headers, CE_TYPE)
    if said is not None:
        return said.decode("utf-8", "replace")
    try:
        return record.unchecked.event_type
    except CorruptRecordError:
        return None
