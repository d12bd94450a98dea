"""The port: an append-only, partitioned log of envelopes that is also the bus (RFC-1001 §6.3, §6.4).

`EventStore` and `EnvelopeBridge` of RFC-1001 are one thing here, because the log is the bus: `publish` is
`append`, and nothing is ever appended twice. Each backend (`memory`, `sqlite`, `kafka`) has a folder of its
own; one contract suite (`tests/contract`) runs against all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.record import Decoder, Record
from noesium_stream.log.topics import TopicSpec, Topology

Header = tuple[str, bytes]
Headers = Sequence[Header]
Types = Collection[str] | None
"""Event types to keep (exact, or a prefix ending in `.`); None keeps all."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class Position(NamedTuple):
    """The place of a record; offsets grow within a partition and may have gaps."""

    topic: str
    partition: int
    offset: int


Cursor = Mapping[int, int]
"""The next offset to read, per partition of one topic; a missing partition starts at its first offset."""

Only = Collection[int] | None
"""The partitions to read; None reads all."""


class Outgoing(NamedTuple):
    """A record for a writer to commit.

    `key` orders it (in a journal: the run it belongs to, which is not always the envelope's own
    `partition_key`). `partition` is explicit, because an owner writes to the partition that it owns.
    `headers` are added to the standard headers of every record.
    """

    envelope: EventEnvelope
    topic: str
    partition: int
    key: str
    headers: Headers = ()


outgoing_of: Final = cast(
    Callable[[tuple[EventEnvelope, str, int, str, Headers]], Outgoing], partial(tuple.__new__, Outgoing)
)
"""Make a record from its fields, at a third of the cost of calling the class."""


def outgoing(envelope: EventEnvelope, topic: str, partition: int, key: str) -> Outgoing:
    """A record without extra headers, at half the cost of calling its class: one is made for each event."""
    return outgoing_of((envelope, topic, partition, key, ()))


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its size. `bytes` is None if unknown, `retention_ms` is None if unlimited.

    `records` counts retained offsets: on Kafka each transaction takes one more in each of its partitions.
    """

    name: str
    partitions: int
    records: int
    bytes: int | None
    retention_ms: int | None


class TopicShape(NamedTuple):
    """The properties of a topic that readers need; `topic_id` is that of `EventLog.topic_id`."""

    partitions: int
    topic_id: str


class GroupShare(NamedTuple):
    """A member of a consumer group, as others see it.

    Attributes:
        member: its name, `host/pid/…`: the process, and a part that no other member has. A program of another
            kind appears under the name that it chose.
        partitions: the partitions that it reads now.
    """

    member: str
    partitions: frozenset[TopicPartition]


def process_of(member: str) -> str:
    """The process of a group's member, by its name: `host/pid`."""
    return member.rpartition("/")[0] or member


class Tenure(Protocol):
    """Proof that a group has assigned a partition to a member, with its epoch or generation.

    It ends when the group gives the partition to another member, even before the member knows. Two tenures
    are equal if they have the same content. Made by `Subscription.tenure`, for `EventLog.writer` of the same
    log.
    """

    @property
    def partition(self) -> TopicPartition:
        """The assigned partition."""


class Transaction(Protocol):
    """An open transaction of a writer. Leaving it without `commit` means `abort`."""

    async def write(self, outgoing: Sequence[Outgoing]) -> None:
        """Hand records to the log; nobody sees them before the commit.

        Raises `EventValidationError`, `RecordTooLargeError`, `LogUnavailableError`, `FencedError`; the
        transaction can then only be aborted.
        """

    async def commit(self) -> list[Position]:
        """Make all records visible at once; return the position of each, in the order written.

        Raises `FencedError`, `CommitUnknownError`, `LogFullError`, `LogUnavailableError`.
        """

    async def abort(self) -> None:
        """Drop all records; harmless when the transaction has ended."""


class LogWriter(Protocol):
    """A fenced transactional writer: at most one writer of an id is alive at any time."""

    @property
    def writer_id(self) -> str:
        """The id under which it was opened."""

    tells_positions: bool
    """Whether `commit` returns positions; True unless its user sets it to False. Delivery reports for each
    record can cost as much as sending it. If False, `commit` may return an empty list."""

    @property
    def epoch(self) -> int:
        """The writer's epoch; it grows with each opening of the same id."""

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        """Commit records to any topics, all or none; return the position of each, in order.

        Every record gets the header `noesium_commit` (`<commit id>:<index>:<count>`, counted per partition),
        so that readers of the log can detect a torn commit.

        Raises:
            FencedError: another writer of this id was opened; nothing of this commit is visible.
            CommitUnknownError: the outcome is unknown; open a new writer and read the log.
            EventValidationError, RecordTooLargeError: refused before anything was written.
            LogFullError, LogUnavailableError: nothing was written; the same call may succeed later.
        """

    async def begin(self) -> Transaction:
        """Open a transaction that is written in parts; a writer has one at a time."""

    async def close(self) -> None:
        """Abort an open transaction and release the client; fences nobody."""


Handler = Callable[[Sequence[Record]], Awaitable[None]]
"""Handles the next records of the assigned partitions; an error that it raises ends the subscription."""

OnAssigned = Callable[[frozenset[TopicPartition]], Awaitable[Mapping[TopicPartition, int] | None]]
"""Called with new partitions before their first record; may return the start offset of each."""

OnRevoked = Callable[[frozenset[TopicPartition]], Awaitable[None]]
"""Called with revoked partitions, after their last record was handled and before another member takes them.
Called with lost partitions, which others hold already, as soon as the loss is known, even while their records
are being handled."""


class Subscription(Protocol):
    """A member of a consumer group."""

    @property
    def member(self) -> str:
        """Its name in `EventLog.members`."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this member reads now."""

    async def wait(self) -> None:
        """Return when the subscription is closed; raise the error of the handler or of the log."""

    def position(self, tp: TopicPartition) -> int | None:
        """The offset below which every wanted record was handled; None: the partition is not read here."""

    def behind(self, tp: TopicPartition) -> int:
        """The known number of offsets after the last delivered records.

        An estimate for handlers that prefer large batches: 0 if nothing is known.
        """

    def seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """Continue from other offsets in these partitions: no earlier record is delivered after this call.

        Ignores partitions that this member does not read. Call it on the event loop; the handler may call it
        too.
        """

    def change_topics(self, topics: Sequence[str]) -> None:
        """Read these topics from now on; partitions of topics that stay are not disturbed.

        Raises `TopicNotFoundError` if it is known at once that a topic is missing.
        """

    async def tenure(self, tp: TopicPartition) -> Tenure:
        """This member's tenure of a partition; valid to ask from `on_assigned` on, until `on_revoked`.

        The group may have ended it already: a writer that is opened under it finds out.

        Raises:
            TenureEndedError: this member does not hold the partition.
        """

    async def close(self) -> None:
        """Leave the group: finish the last batch, call `on_revoked`, and let others take over at once."""


class EventLog(Protocol):
    """An append-only, partitioned log of envelopes that is also the bus (RFC-1001 §6.3, §6.4)."""

    @property
    def url(self) -> str:
        """The address, without secrets."""

    @property
    def topology(self) -> Topology:
        """Names and default partition counts of this log's namespace."""

    @property
    def decoder(self) -> Decoder:
        """The decoder of this log's records; for records that were stored elsewhere."""

    @property
    def catalogue(self) -> Catalogue:
        """The event types that this log validates; a program may register its own."""

    async def append(self, envelopes: Sequence[EventEnvelope], *, topic: str | None = None) -> list[Position]:
        """Append all or none, to the topics of `route` (or to `topic`); return the positions in order.

        Missing topics are created with the settings of `topology`. Journals are refused: only a writer may
        write to them.

        Raises:
            EventValidationError, RecordTooLargeError: refused before anything was written.
            LogFullError, LogUnavailableError: nothing was written; retriable.
            CommitUnknownError: sent but not acknowledged: append the same events again, or read.
        """

    async def publish(self, envelope: EventEnvelope) -> Position:
        """Append one event: the bus is the log (RFC-1001 §6.4)."""

    async def append_each(self, envelopes: Sequence[EventEnvelope]) -> None:
        """Append events in order, each by itself, to the topics of `route`, without a transaction.

        For events that may be lost: after an error some of them may be there. Where that costs no more, all
        or none are. Missing topics are created as by `append`.

        Raises:
            EventValidationError, RecordTooLargeError: refused before anything was written.
            LogFullError, LogUnavailableError, CommitUnknownError
        """

    async def writer(self, writer_id: str, *, tenure: Tenure | None = None) -> LogWriter:
        """Open the transactional writer of this id; fence the current holder and abort its open transaction.

        Under a tenure its first commit succeeds only while the group leaves the partition to that member
        (KIP-447). A late member fences the partition's new holder, and then fails at its own first commit. If
        the tenure is already known to have ended, nobody is fenced.

        Raises `LogUnavailableError`; `TenureEndedError`.
        """

    def read(
        self,
        topic: str,
        cursor: Cursor,
        *,
        until: Cursor | None = None,
        types: Types = None,
        partitions: Only = None,
    ) -> AsyncIterator[Record]:
        """Yield committed records from `cursor`, in offset order within each partition.

        With `until` (the next offset per partition, as `end` returns it) it ends when every partition named
        there is read that far; other partitions are not read. Without `until` it reads all partitions for
        ever and waits for new records. With `partitions`, only those are read, whatever `cursor` and `until`
        say; if none is left, it ends at once. `types` are judged on headers.

        Raises:
            LogTruncatedError: the cursor lies below the first retained offset.
            EventValidationError: the topic has no such partition.
            TopicNotFoundError, LogUnavailableError, LogCorruptError
        """

    def read_batches(
        self,
        topic: str,
        cursor: Cursor,
        *,
        until: Cursor | None = None,
        types: Types = None,
        partitions: Only = None,
    ) -> AsyncIterator[Sequence[Record]]:
        """As `read`, in batches as they arrive; for folds."""

    async def end(self, topic: str) -> dict[int, int]:
        """The high watermark of every partition: the end of a fold (not the last stable offset).

        Raises `TopicNotFoundError`, `LogUnavailableError`.
        """

    async def beginning(self, topic: str) -> dict[int, int]:
        """The first retained offset of every partition.

        Raises `TopicNotFoundError`, `LogUnavailableError`.
        """

    async def last_offset(self, topic: str) -> int:
        """The number of offsets used in all partitions of `topic` together (RFC-1001 §6.3)."""

    def read_by_correlation(self, correlation_id: str, topics: Sequence[str]) -> AsyncIterator[Record]:
        """Yield the records that `topics` hold now with this correlation id, by partition and offset."""

    async def subscribe(
        self,
        group: str,
        topics: Sequence[str],
        handler: Handler,
        *,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        types: Types = None,
    ) -> Subscription:
        """Join a consumer group; its members share the partitions.

        A partition starts at the offset from `on_assigned`, else at the group's committed offset, else at its
        beginning. The group's offset is committed after the handler has returned (at least once).
        """

    async def members(self, group: str) -> list[GroupShare]:
        """The members of a consumer group with their partitions, by name.

        A partition that no member lists is either changing hands or read by nobody. A killed member is listed
        on Kafka until its session expires: some seconds.

        Raises `LogUnavailableError`.
        """

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        """Tell a group that the processes of these members have died: it need not wait for their leases.

        Whoever is no member is passed over. A member that lives after all joins again; what it does with its
        partitions until then is void, as after the end of its lease.

        Raises:
            LogUnavailableError: nobody answers.
            LogForbiddenError: this client may not read in the group.
        """

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create the missing topics; check the existing ones.

        Raises:
            TopicConfigError: a topic has settings that lose or reorder events; names the setting and the
                reason.
        """

    async def topics(self) -> list[TopicInfo]:
        """The topics of this namespace, by name."""

    async def layout(self) -> dict[str, TopicShape]:
        """The topics of this namespace by name, with the properties that readers need; cheap.

        Raises `LogUnavailableError`.
        """

    async def topic_id(self, topic: str) -> str:
        """An id that changes when a topic is deleted and created again under its old name.

        Raises `TopicNotFoundError`.
        """

    async def truncate(self, topic: str, before: Cursor) -> None:
        """Remove records below the given offsets (retention by hand)."""

    async def close(self) -> None:
        """Close writers, readers and subscriptions; harmless when repeated."""
