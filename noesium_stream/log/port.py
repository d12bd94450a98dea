"""The port: an append-only, partitioned log of envelopes that is also the bus (RFC-1001 §6.3, §6.4).

`EventStore` and `EnvelopeBridge` of RFC-1001 are one thing here, because the log is the bus: `publish`
is `append`, and nothing is ever appended twice. Backends: `memory`, `sqlite`, `kafka`, one file each;
one contract suite (`tests/contract`) holds for all of them.
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
    """Where a record lies; offsets grow within a partition and may have gaps."""

    topic: str
    partition: int
    offset: int


Cursor = Mapping[int, int]
"""The next offset to read, per partition of one topic; a partition that is missing starts at its first."""

Only = Collection[int] | None
"""The partitions to read; None reads all."""


class Outgoing(NamedTuple):
    """A record that a writer is to commit.

    `key` orders it (in a journal: the run it belongs to, which is not always the envelope's own
    `partition_key`); `partition` is explicit, because an owner writes to the partition that it owns.
    `headers` come on top of those that every record has.
    """

    envelope: EventEnvelope
    topic: str
    partition: int
    key: str
    headers: Headers = ()


outgoing_of: Final = cast(
    Callable[[tuple[EventEnvelope, str, int, str, Headers]], Outgoing], partial(tuple.__new__, Outgoing)
)
"""A record of its fields, at a third of the cost of calling the class."""


def outgoing(envelope: EventEnvelope, topic: str, partition: int, key: str) -> Outgoing:
    """A record without more headers, at half the cost of calling its class: one is made for each event."""
    return outgoing_of((envelope, topic, partition, key, ()))


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as it is. `bytes` and `retention_ms` are None where unknown or unlimited.

    `records` counts retained offsets: on Kafka each transaction takes one more in each of its partitions.
    """

    name: str
    partitions: int
    records: int
    bytes: int | None
    retention_ms: int | None


class TopicShape(NamedTuple):
    """What a reader has to know of a topic; `topic_id` is that of `EventLog.topic_id`."""

    partitions: int
    topic_id: str


class GroupShare(NamedTuple):
    """A member of a consumer group, as others see it.

    Attributes:
        member: its name, `host/pid/…`: which process it is, and something that no other member has. A
            program of another kind is named by what it calls itself.
        partitions: what it reads now.
    """

    member: str
    partitions: frozenset[TopicPartition]


def process_of(member: str) -> str:
    """The process of a group's member, by its name: `host/pid`."""
    return member.rpartition("/")[0] or member


class Tenure(Protocol):
    """That a group has given a partition to one of its members, and since when: an epoch or a generation.

    It ends when the group has given the partition to somebody else, also while the member does not know. Two
    are equal that say the same. Made by `Subscription.tenure`, for `EventLog.writer` of the same log.
    """

    @property
    def partition(self) -> TopicPartition:
        """Of which partition."""


class Transaction(Protocol):
    """An open transaction of a writer. Leaving it without `commit` means `abort`."""

    async def write(self, outgoing: Sequence[Outgoing]) -> None:
        """Hand records to the log; nobody sees them before the commit.

        Raises `EventValidationError`, `RecordTooLargeError`, `LogUnavailableError`, `FencedError`; the
        transaction can then only be aborted.
        """

    async def commit(self) -> list[Position]:
        """Make all records visible at once; return where each lies, in the order written.

        Raises `FencedError`, `CommitUnknownError`, `LogFullError`, `LogUnavailableError`.
        """

    async def abort(self) -> None:
        """Drop all records; harmless when the transaction has ended."""


class LogWriter(Protocol):
    """A fenced transactional writer: at most one of an id is alive at any time."""

    @property
    def writer_id(self) -> str:
        """The id that it was opened with."""

    tells_positions: bool
    """Whether `commit` returns positions, as it does unless somebody sets this to False: to hear of each
    record where it lies can cost as much as to send it. `commit` may return an empty list then."""

    @property
    def epoch(self) -> int:
        """Grows with each opening of the same id."""

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        """Commit records to any topics, all or none; return where each lies, in order.

        Every record gets the header `noesium_commit` (`<commit id>:<index>:<count>`, counted per
        partition), so that a torn commit can be told apart on the log.

        Raises:
            FencedError: another writer of this id was opened; nothing of this commit is visible.
            CommitUnknownError: it may or may not be on the log; open a new writer and read.
            EventValidationError, RecordTooLargeError: refused before anything was written.
            LogFullError, LogUnavailableError: nothing was written; the same call may succeed later.
        """

    async def begin(self) -> Transaction:
        """Open a transaction that is written in parts; a writer has one at a time."""

    async def close(self) -> None:
        """Abort what is open and let go; does not fence anybody."""


Handler = Callable[[Sequence[Record]], Awaitable[None]]
"""Takes the next records of the assigned partitions; what it raises ends the subscription."""

OnAssigned = Callable[[frozenset[TopicPartition]], Awaitable[Mapping[TopicPartition, int] | None]]
"""Told of new partitions before their first record; may say where to start in each."""

OnRevoked = Callable[[frozenset[TopicPartition]], Awaitable[None]]
"""Told of partitions that go, after their last record was handled and before somebody else has them; of those
that others have already as soon as that is known, also while records of them are handled."""


class Subscription(Protocol):
    """A member of a consumer group."""

    @property
    def member(self) -> str:
        """Its name in `EventLog.members`."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What this member reads now."""

    async def wait(self) -> None:
        """Return when it is closed; raise what the handler (or the log) raised, to whoever waits here."""

    def position(self, tp: TopicPartition) -> int | None:
        """The offset below which everything was handled, or is not wanted; None: it is not read here."""

    def behind(self, tp: TopicPartition) -> int:
        """How many offsets lie behind the records that were handed over last, as far as that is known here.

        A guess for those who would rather take many at once: 0 where nothing is known.
        """

    def seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """Go on elsewhere in these partitions: no record from before is handed over after this call.

        Of partitions that this member does not read nothing is done. To be called on the event loop, also
        by the handler itself.
        """

    def change_topics(self, topics: Sequence[str]) -> None:
        """Read these topics from now on; partitions of topics that stay are not disturbed.

        Raises `TopicNotFoundError`, where that can be told at once.
        """

    async def tenure(self, tp: TopicPartition) -> Tenure:
        """What this member knows of its tenure of a partition; from `on_assigned` on, until `on_revoked`.

        The group may have ended it already: a writer that is opened under it finds out.

        Raises:
            TenureEndedError: the partition is not this member's.
        """

    async def close(self) -> None:
        """Leave the group: the last batch ends, `on_revoked` is called, others take over at once."""


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
        """What decodes the records of this log; for records that were kept elsewhere."""

    @property
    def catalogue(self) -> Catalogue:
        """The event types that this log validates; a program may register its own."""

    async def append(self, envelopes: Sequence[EventEnvelope], *, topic: str | None = None) -> list[Position]:
        """Append all or none to where `route` says (or to `topic`); return where each one lies, in order.

        Topics that do not exist are created as `topology` wants them. Never into a journal: that takes a
        writer.

        Raises:
            EventValidationError, RecordTooLargeError: refused before anything was written.
            LogFullError, LogUnavailableError: nothing was written; retriable.
            CommitUnknownError: sent and not acknowledged: append the same events again, or read.
        """

    async def publish(self, envelope: EventEnvelope) -> Position:
        """`append` of one: the bus is the log (RFC-1001 §6.4)."""

    async def writer(self, writer_id: str, *, tenure: Tenure | None = None) -> LogWriter:
        """Open the transactional writer of this id, fencing whoever holds it and aborting what it left.

        Under a tenure its first commit succeeds only while the group leaves the partition to that member
        (KIP-447): one that is late fences whoever has the partition by now, and then cannot get past its
        own first commit. Where it shows at once that the tenure has ended, nobody is fenced.

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

        With `until` (the next offset per partition, as `end` gives it) it ends when every partition named
        there is read that far; partitions that `until` does not name are not read. Without `until` it
        reads all partitions and goes on for ever, waiting for new records. Of the others than `partitions`
        nothing is read, whatever `cursor` and `until` say of them; where none is left it ends at once.
        `types` are judged on headers.

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
        """As `read`, in batches as they come; for folds."""

    async def end(self, topic: str) -> dict[int, int]:
        """The high watermark of every partition: what a fold has to reach (not the last stable offset).

        Raises `TopicNotFoundError`, `LogUnavailableError`.
        """

    async def beginning(self, topic: str) -> dict[int, int]:
        """The first retained offset of every partition.

        Raises `TopicNotFoundError`, `LogUnavailableError`.
        """

    async def last_offset(self, topic: str) -> int:
        """The number of offsets used in all partitions of `topic` together (RFC-1001 §6.3)."""

    def read_by_correlation(self, correlation_id: str, topics: Sequence[str]) -> AsyncIterator[Record]:
        """Yield what `topics` hold now with this correlation id, by partition and offset."""

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
        """Join a consumer group; partitions are shared among its members.

        A partition starts where `on_assigned` says, else where the group has committed, else at its
        beginning. The group's offset is committed after the handler has returned (at least once).
        """

    async def members(self, group: str) -> list[GroupShare]:
        """Who reads which partition in a consumer group now, by name.

        A partition that nobody is said to have is just changing hands, or nobody reads it. A member that
        was killed is listed until its lease (on Kafka its session) has run out: some seconds.

        Raises `LogUnavailableError`.
        """

    async def ensure_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics that are missing; check those that exist.

        Raises:
            TopicConfigError: one exists with settings that lose or reorder events; says which and why.
        """

    async def topics(self) -> list[TopicInfo]:
        """The topics of this namespace, by name."""

    async def layout(self) -> dict[str, TopicShape]:
        """The topics of this namespace by name, with what readers have to know of them; cheap.

        Raises `LogUnavailableError`.
        """

    async def topic_id(self, topic: str) -> str:
        """An id that changes when a topic is deleted and made anew under its old name.

        Raises `TopicNotFoundError`.
        """

    async def truncate(self, topic: str, before: Cursor) -> None:
        """Remove records below the given offsets (retention by hand)."""

    async def close(self) -> None:
        """Close writers, readers and subscriptions; harmless when repeated."""
