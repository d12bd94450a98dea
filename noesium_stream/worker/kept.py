"""Requests that this worker cannot take, and another one may: they are parked in the partition's own log.

A record of the inbox is parked when its schema is not known here (its Avro schema, its event type, or a
major version of that), or when it is a command that asks for a version which is not carried here; and so is
what is sent to a run whose command is parked. It is written there as it is (`request.parked`) in the
commit that decides on it, so that the inbox need not hold it, other requests pass it, and no file has to
be there when the next owner comes. Who takes the partition looks at what is parked there: what it can take
is judged as if it had just come in, `request.resumed` says so in the same commit, and its run begins out of
turn.

Somebody who does not want to wait cancels the run: a command that can be read begins and is cancelled, what
cannot be read becomes a dead letter.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import orjson

from noesium_stream.clock import Clock
from noesium_stream.errors import CorruptRecordError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import RequestParked, RequestResumed
from noesium_stream.log.headers import CE_TYPE, SOURCE
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.record import Record
from noesium_stream.worker.inbox import FOR_RUNS
from noesium_stream.worker.state import PartitionState
from noesium_stream.worker.state_file import row_sum
from noesium_stream.worker.waiting import texts_of

PART_BYTES: Final = 600_000
"""So much of a record is in one event of the journal: in base64 more would not fit."""


HEADER_BYTES: Final = 16_384
"""More of headers would not fit beside it, as JSON."""


class Kept(NamedTuple):
    """A parked request.

    Attributes:
        record: as it came in; its position is that of its `request.parked` in the journal.
        origin: where it came in.
        reason: why it is parked.
        offsets: of all parts of it in the journal.
    """

    record: Record
    origin: Position
    reason: str
    offsets: tuple[int, ...]


class KeepingOwner(Protocol):
    """What is asked of the owner of the partition."""

    clock: Clock
    agent_ref: AgentRef
    journal: str
    partition: int
    log: EventLog


class KeptRequests:
    """The parked requests of a partition.

    Args:
        owner: of the partition.
        state: of the partition.
    """

    def __init__(self, owner: KeepingOwner, state: PartitionState) -> None:
        self._owner = owner
        self._state = state

    def __len__(self) -> int:
        return self._state.manifest.counts["parked"]

    def __contains__(self, run_id: object) -> bool:
        """Whether a request of this run is parked."""
        if not len(self):
            return False
        return bool(self._state.file.read("SELECT 1 FROM parked WHERE run_id = ? LIMIT 1", (run_id,)))

    def of(self, run_id: str) -> list[Kept]:
        """Those of a run, in order."""
        return self._read(run_id) if run_id in self else []

    def may_have_command(self, run_id: str) -> bool:
        """Whether one of them may be the command of the run."""
        return any(may_be_command(kept.record) for kept in self.of(run_id))

    def runs(self) -> list[str]:
        """The runs that have some, in the order of the first of each."""
        query = "SELECT run_id FROM parked GROUP BY run_id ORDER BY min(journal_offset)"
        return [run_id for (run_id,) in self._state.file.read(query)]

    def reasons(self, most: int) -> list[str]:
        """What they wait for, at most so many, each once."""
        found = self._state.file.read("SELECT DISTINCT reason FROM parked ORDER BY reason LIMIT ?", (most,))
        return [reason for (reason,) in found]

    def _read(self, run_id: str) -> list[Kept]:
        columns = "journal_offset, run_id, reason, body, sum"
        where = "run_id = ? ORDER BY journal_offset"
        rows = self._state.file.read(f"SELECT {columns} FROM parked WHERE {where}", (run_id,))
        found: list[Kept] = []
        parts: list[tuple[int, bytes]] = []
        for offset, key, reason, body, found_sum in rows:
            if not isinstance(body, bytes) or row_sum(offset, key, reason, value=body) != found_sum:
                raise self._state.file.broken(f"the row of the parked request {offset} is damaged")
            payload = orjson.loads(body)
            parts.append((offset, base64.b64decode(payload["record_base64"])))
            if len(parts) == payload["parts"]:
                found.append(self._kept(payload, parts))
                parts = []
        return found

    def _kept(self, payload: dict[str, object], parts: Sequence[tuple[int, bytes]]) -> Kept:
        said = RequestParked.model_validate(payload)
        owner = self._owner
        record = Record(
            owner.journal,
            owner.partition,
            parts[0][0],
            said.logged_ms,
            said.run_id,
            [(name, text.encode("latin-1")) for name, text in said.headers],
            b"".join(value for _, value in parts),
            owner.log.decoder,
        )
        origin = Position(said.topic, said.partition, said.offset)
        return Kept(record, origin, said.reason, tuple(offset for offset, _ in parts))


def parked(
    owner: KeepingOwner, record: Record, reason: str, origin: Position | None = None
) -> list[Outgoing]:
    """What keeps a record: one event, or several parts of it, for one commit.

    `origin` is where it came in, if that is not its own position.
    """
    topic, partition, offset = origin or Position(record.topic, record.partition, record.offset)
    values = list(_parts(record.value))
    said = [
        RequestParked(
            run_id=record.key,
            request_type=_type_of(record),
            reason=reason,
            topic=topic,
            partition=partition,
            offset=offset,
            logged_ms=record.timestamp_ms,
            headers=texts_of(record.headers),
            record_base64=base64.b64encode(value).decode(),
            part=number,
            parts=len(values),
        )
        for number, value in enumerate(values)
    ]
    # A place of the inbox once: one that is parked anew has been decided on before.
    source = ((SOURCE, f"{topic}/{partition}/{offset}".encode()),) if origin is None else ()
    return [_said(owner, event, source if event.part == 0 else ()) for event in said]


def resumed(owner: KeepingOwner, run_id: str, offsets: Sequence[int], refused: str | None) -> Outgoing:
    """What says that parked requests of a run are dealt with; `refused`: why one is a dead letter."""
    return _said(owner, RequestResumed(run_id=run_id, offsets=list(offsets), refused=refused), ())


def may_be_command(record: Record) -> bool:
    """Whether a record may begin a run: it is not known to be one for a run that has begun."""
    return _type_of(record) not in FOR_RUNS


def is_keepable(record: Record) -> bool:
    """Whether what keeps a record fits into the journal."""
    return sum(len(name) + len(value or b"") for name, value in record.headers) <= HEADER_BYTES


def _parts(value: bytes) -> Iterator[bytes]:
    yield value[:PART_BYTES]
    for start in range(PART_BYTES, len(value), PART_BYTES):
        yield value[start : start + PART_BYTES]


def _type_of(record: Record) -> str | None:
    said = record.header(CE_TYPE)
    if said is not None:
        return said.decode("utf-8", "replace")
    try:
        return record.unchecked.event_type
    except CorruptRecordError:
        return None


def _said(owner: KeepingOwner, event: DomainEvent, headers: tuple[tuple[str, bytes], ...]) -> Outgoing:
    # Not under the run's key: what has that is a record of the run, and has a number among them.
    key = f"partition-{owner.partition}"
    trace = TraceContext(owner.clock.token(16), owner.clock.token(8))
    envelope = event.to_envelope(owner.agent_ref, trace, partition_key=key, clock=owner.clock)
    return Outgoing(envelope, owner.journal, owner.partition, key, headers)
