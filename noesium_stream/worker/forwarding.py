"""What a partition hands on once its agent type has grown (see `noesium_stream.log.generations`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from noesium_stream.clock import Clock
from noesium_stream.errors import CorruptRecordError, EventValidationError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import PartitionOutgrown, RequestForwarded
from noesium_stream.log.headers import ORIGIN, SOURCE
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of


class ForwardingOwner(Protocol):
    """Whose partition it is."""

    clock: Clock
    agent_ref: AgentRef
    journal: str
    partition: int
    generation: int
    log: EventLog

    async def open_next(self, partitions: int, *, told: bool) -> bool:
        """Return when the inbox of the next generation is there, True.

        False: the inbox alone has `told` of it, where anyone may write, and there is no journal of so many
        partitions, which who grows an agent makes first.
        """


class Forwarding:
    """The way from a partition to the next generation.

    Args:
        owner: of the partition.
        successor: number and partitions of the next generation, as the journal has it.
    """

    def __init__(self, owner: ForwardingOwner, successor: tuple[int, int] | None) -> None:
        self._owner = owner
        self._partitions = None if successor is None else successor[1]
        self._founded: int | None = None
        self._ready = False

    @property
    def grown(self) -> bool:
        """Whether there is a next generation."""
        return self._partitions is not None

    async def prepare(self, records: Sequence[Record] = ()) -> None:
        """Return when there is a place to hand on to, should these records tell of one.

        Before they are decided on: what is decided goes to the log without a pause.
        """
        if self._ready:
            return
        if self._partitions is not None:
            self._ready = await self._owner.open_next(self._partitions, told=False)
            return
        for partitions in self._told(records):
            if await self._owner.open_next(partitions, told=True):
                self._founded, self._ready = partitions, True
                return

    def _told(self, records: Sequence[Record]) -> list[int]:
        """How many partitions the next generation has, as these records say, each number once."""
        found: dict[int, None] = {}
        for record in records:
            with suppress(CorruptRecordError, UnicodeDecodeError):  # what it is is told when it is judged
                if record.event_type == PartitionOutgrown.TYPE:
                    news = record.envelope.payload
                    if self._misdirected(news) is None:
                        found[news["partitions"]] = None
        return list(found)

    def outgrown(self, record: Record) -> list[Outgoing] | EventValidationError:
        """Learn of a growth; the journal's copy of the news, nothing where it is none."""
        owner, payload = self._owner, record.envelope.payload
        refused = self._misdirected(payload)
        if refused is not None:
            return refused
        if self._partitions is not None:
            return []
        if payload["partitions"] != self._founded:
            said = f"{payload['partitions']}: generation {payload['generation']} has no such journal"
            return EventValidationError("payload.partitions", said)
        self._partitions = self._founded
        key = f"partition-{owner.partition}"
        return [Outgoing(record.envelope, owner.journal, owner.partition, key, (_source(record),))]

    def _misdirected(self, news: Mapping[str, Any]) -> EventValidationError | None:
        owner = self._owner
        if news["agent_type"] != owner.agent_ref.agent_type:
            return EventValidationError("payload.agent_type", f"is {news['agent_type']}")
        if news["generation"] != owner.generation + 1:
            return EventValidationError("payload.generation", f"does not follow {owner.generation}")
        if news["partition"] != owner.partition:
            return EventValidationError("payload.partition", f"is {news['partition']}")
        return None

    def forwarded(self, record: Record) -> list[Outgoing]:
        """A request as it goes on, and what the journal says of that; one commit."""
        owner, event = self._owner, record.envelope
        assert self._partitions is not None, "only who has been outgrown hands on"
        origin = record.header(ORIGIN)
        inbox = owner.log.topology.inbox(owner.agent_ref.agent_type, owner.generation + 1)
        said = RequestForwarded(
            agent_type=owner.agent_ref.agent_type,
            run_id=record.key,
            request_type=event.event_type,
            request_event_id=event.event_id,
            generation=owner.generation + 1,
            partitions=self._partitions,
        )
        return [
            Outgoing(
                event,
                inbox,
                partition_of(record.key, self._partitions),
                record.key,
                () if origin is None else ((ORIGIN, origin),),
            ),
            _said(owner, said, event.trace, event.event_id, (_source(record),)),
        ]


def outgrown(owner: ForwardingOwner, partitions: int) -> Outgoing:
    """The news for a journal whose inbox has lost them."""
    event = PartitionOutgrown(
        agent_type=owner.agent_ref.agent_type,
        partition=owner.partition,
        generation=owner.generation + 1,
        partitions=partitions,
    )
    trace = TraceContext(owner.clock.token(16), owner.clock.token(8))
    return _said(owner, event, trace, None, ())


def _source(record: Record) -> tuple[str, bytes]:
    return SOURCE, f"{record.topic}/{record.partition}/{record.offset}".encode()


def _said(
    owner: ForwardingOwner,
    event: DomainEvent,
    trace: TraceContext,
    causation_id: str | None,
    headers: tuple[tuple[str, bytes], ...],
) -> Outgoing:
    key = f"partition-{owner.partition}"
    envelope = event.to_envelope(owner.agent_ref, trace, causation_id, partition_key=key, clock=owner.clock)
    return Outgoing(envelope, owner.journal, owner.partition, key, headers)
