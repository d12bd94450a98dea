"""The store of an embedded log: its topics, and the interface of a backend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from noesium_stream.errors import TopicConfigError
from noesium_stream.log.embedded.group import Coordinator, MemberTenure
from noesium_stream.log.embedded.wakeup import Signal
from noesium_stream.log.headers import TypeFilter
from noesium_stream.log.port import GroupShare, LogWriter, Position, TopicPartition
from noesium_stream.log.prepare import Prepared
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicSpec


class Topic(NamedTuple):
    """A topic of a store. Its partitions are numbered within the whole store, from `slot` on."""

    name: str
    partitions: int
    retention_ms: int | None
    uid: str
    slot: int


class Bounds(NamedTuple):
    """The first retained offset and the high watermark."""

    first: int
    end: int


class Store(Protocol):
    """The storage of an embedded log."""

    changes: Signal

    def topic(self, name: str) -> Topic | None:
        """The topic of this name, if it exists."""

    def topics(self) -> list[Topic]:
        """All topics, by name."""

    async def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create the missing topics; existing ones stay as they are."""

    async def append(self, records: Sequence[Prepared], partitions: Sequence[int]) -> list[Position]:
        """Write all or none, each record into the given partition."""

    def fetch(
        self, topic: Topic, partition: int, offset: int, limit: int, keep: TypeFilter | None
    ) -> tuple[list[Record], int]:
        """Committed records from `offset` on, about `limit` at most, and the next offset to read.

        Raises `LogTruncatedError`.
        """

    def unread(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """The partitions that may have records from these offsets on, in the given order; cheap."""

    def bounds(self, topic: Topic, partitions: Iterable[int]) -> list[Bounds]:
        """The bounds of these partitions, in the given order."""

    def size(self, topic: Topic) -> tuple[int, int | None]:
        """The number of records, and bytes if known."""

    async def truncate(self, topic: Topic, partition: int, before: int) -> None:
        """Remove records below `before`."""

    async def writer(self, writer_id: str, tenure: MemberTenure | None) -> LogWriter:
        """See `EventLog.writer`."""

    def coordinator(self, group: str, member: str, topics: Sequence[Topic]) -> Coordinator:
        """A new member's view of a group."""

    async def members(self, group: str) -> list[GroupShare]:
        """See `EventLog.members`."""

    async def dismiss(self, group: str, members: Collection[str]) -> None:
        """See `EventLog.dismiss`."""

    def watch(self) -> None:
        """Start to report other processes' commits through `changes`."""

    @property
    def pause(self) -> Callable[[], Awaitable[None]] | None:
        """A pause before and after every operation, in which a seeded scheduler interleaves other tasks.

        None: this store has no scheduler.
        """

    async def close(self) -> None:
        """Release all resources."""


def check_spec(spec: TopicSpec, topic: Topic | None) -> None:
    """Refuse a topic whose settings would lose or reorder events.

    Raises:
        TopicConfigError: names the setting and the reason.
    """
    if topic is None:
        return
    if topic.partitions < spec.partitions and not spec.as_is:
        raise TopicConfigError(
            f"{topic.name} has {topic.partitions} partitions, {spec.partitions} are wanted.",
            hint="A topic's partitions cannot be added without reordering its keys. "
            f"Work with {topic.partitions}, or use another namespace.",
        )
    if topic.retention_ms is not None and (
        spec.retention_ms is None or topic.retention_ms < spec.retention_ms
    ):
        wanted = "for good" if spec.retention_ms is None else f"for {spec.retention_ms} ms"
        raise TopicConfigError(
            f"{topic.name} keeps its records for {topic.retention_ms} ms, they have to be kept {wanted}.",
            hint="Events that somebody still needs would be removed. Change the topic's retention.",
        )
