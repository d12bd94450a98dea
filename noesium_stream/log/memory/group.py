"""Consumer groups of `memory://`: the table of one group, and one member's view of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from noesium_stream.log.embedded.group import Claim, Plan, assign
from noesium_stream.log.embedded.store import Topic
from noesium_stream.log.port import TopicPartition


class GroupTable:
    """Members, holders, epochs and offsets of one group; `generation` counts the changes."""

    def __init__(self) -> None:
        self.generation = 1
        self.members: dict[str, frozenset[str]] = {}
        self.partitions: set[TopicPartition] = set()
        self.owners: dict[TopicPartition, str] = {}
        self.epochs: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}

    def leaves(self, tp: TopicPartition, member: str, epoch: int) -> bool:
        """Whether this member still holds a partition, in this epoch."""
        return self.owners.get(tp) == member and self.epochs[tp] == epoch

    def drop(self, members: Collection[str]) -> None:
        """Free what these members hold; whoever is no member is passed over."""
        for member in members:
            self.members.pop(member, None)
        for tp in [tp for tp, owner in self.owners.items() if owner in members]:
            del self.owners[tp]
        self.generation += 1


class MemoryCoordinator:
    """A member of a group in this process; it cannot vanish, so there are no leases."""

    beat_s: float | None = None

    def __init__(self, table: GroupTable, member: str, topics: Sequence[Topic]) -> None:
        self._table = table
        self._member = member
        self._seen = 0
        self._join({topic.name: topic.partitions for topic in topics})

    def _join(self, topics: Mapping[str, int]) -> None:
        table = self._table
        self._topics = topics
        table.members[self._member] = frozenset(topics)
        table.partitions.update(
            TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)
        )
        table.generation += 1

    def hurry(self) -> None:
        """Do nothing: no operation here takes time."""

    def changed(self) -> bool:
        """Whether the table has changed since the last `poll`."""
        return self._seen != self._table.generation

    async def poll(self) -> Plan:
        """Take free partitions; report those to release. Who was dismissed joins again."""
        table = self._table
        if self._member not in table.members:
            self._join(self._topics)
        target = assign(table.members, table.partitions, table.owners)
        for tp, member in target.items():
            if member == self._member and tp not in table.owners:
                table.owners[tp] = member
                table.epochs[tp] = table.epochs.get(tp, 0) + 1
        self._seen = table.generation
        held = {
            tp: Claim(table.epochs[tp], table.offsets.get(tp))
            for tp, owner in table.owners.items()
            if owner == self._member
        }
        return Plan(held, frozenset(tp for tp in held if target.get(tp) != self._member))

    async def beat(self) -> None:
        """Do nothing: there is no lease to renew."""

    def holds(self, claims: Mapping[TopicPartition, Claim]) -> bool:
        """Whether all of these are still this member's, in these epochs."""
        return all(self._table.leaves(tp, self._member, claim.epoch) for tp, claim in claims.items())

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Set the group's next offsets."""
        for tp, (offset, epoch) in offsets.items():
            if self._table.leaves(tp, self._member, epoch):
                self._table.offsets[tp] = offset

    async def follow(self, topics: Mapping[str, int]) -> None:
        """Read these topics from now on."""
        self._join(topics)

    async def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Release these partitions to other members."""
        for tp in partitions:
            if self._table.owners.get(tp) == self._member:
                del self._table.owners[tp]
        self._table.generation += 1

    async def leave(self) -> None:
        """Release everything."""
        self._table.drop([self._member])
