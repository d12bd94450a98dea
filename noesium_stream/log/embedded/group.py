"""Consumer groups of the embedded backends: the assignment of partitions, and the loop of one member.

There is no leader and no barrier. Every member computes the same assignment from the same table (`assign`),
releases partitions that are assigned to others, and takes free ones. A partition becomes free only after its
holder has handled its last batch and returned from `on_revoked`, or after its lease has expired. Each taking
increments the partition's epoch. Offsets are committed with the epoch, so that a member that lost a
partition cannot move the group's offset.

A full log ends no member: it keeps what it holds and tries again. Others need the same room to take it over;
if they find it first, the epochs tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from noesium_stream.errors import EventStoreError, LogFullError, LogUnavailableError
from noesium_stream.log.embedded.wakeup import Signal
from noesium_stream.log.members import TENURE_HINT, tenure_ended
from noesium_stream.log.port import GroupShare, Handler, OnAssigned, OnRevoked, Tenure, TopicPartition
from noesium_stream.log.record import Record

BATCH_RECORDS: Final = 500
"""Largest number of records that a handler gets at once."""

FULL_PAUSE_S: Final = 1.0
"""How long a member waits before it writes to a full log again, in seconds; changes wake it sooner."""

Unread = Callable[[Mapping[TopicPartition, int]], Sequence[TopicPartition]]
"""Maps next offsets by partition to the partitions that may have records from there on."""

Fetch = Callable[[TopicPartition, int, int], tuple[Sequence[Record], int]]
"""(partition, offset, limit) -> the wanted records, and the next offset to read."""


Resolve = Callable[[Sequence[str]], Mapping[str, int]]
"""Maps topic names to partition counts; raises `TopicNotFoundError`."""


def shares(members: Iterable[str], owners: Mapping[TopicPartition, str]) -> list[GroupShare]:
    """The group's table in the form that `EventLog.members` returns."""
    return [
        GroupShare(name, frozenset(tp for tp, owner in owners.items() if owner == name))
        for name in sorted(members)
    ]


class Claim(NamedTuple):
    """A partition that this member holds: its epoch, and the group's offset (None: never committed)."""

    epoch: int
    offset: int | None


class MemberTenure(NamedTuple):
    """A `Tenure` of the embedded backends: each taking of a partition has its own epoch."""

    group: str
    member: str
    partition: TopicPartition
    epoch: int


def member_tenure(tenure: Tenure | None) -> MemberTenure | None:
    """Check that a tenure was made by an embedded backend, and return it.

    Raises:
        EventStoreError: another backend made it.
    """
    if tenure is None or isinstance(tenure, MemberTenure):
        return tenure
    raise EventStoreError(f"{type(tenure).__name__} is no tenure of this log.", hint=TENURE_HINT)


class Plan(NamedTuple):
    """The partitions that a member holds, and those of them that it must release."""

    held: Mapping[TopicPartition, Claim]
    leaving: frozenset[TopicPartition]


class Coordinator(Protocol):
    """One member's view of its group's table."""

    beat_s: float | None
    """Interval of lease renewals; None where members cannot vanish."""

    def hurry(self) -> None:
        """The member leaves: wait for an unavailable log only briefly."""

    def changed(self) -> bool:
        """Whether the table has changed since the last `poll`; cheap."""

    async def poll(self) -> Plan:
        """Renew the lease, drop members whose lease has expired, take free partitions."""

    async def beat(self) -> None:
        """Renew the lease."""

    def holds(self, claims: Mapping[TopicPartition, Claim]) -> bool:
        """Whether all of these are still this member's, in these epochs."""

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Set the group's next offsets, given as (offset, epoch); ignores partitions that were lost."""

    async def follow(self, topics: Mapping[str, int]) -> None:
        """Read these topics from now on: the number of partitions by name."""

    async def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Release these partitions to other members."""

    async def leave(self) -> None:
        """Release everything and leave the group."""


def assign(
    members: Mapping[str, frozenset[str]],
    partitions: Iterable[TopicPartition],
    owners: Mapping[TopicPartition, str],
) -> dict[TopicPartition, str]:
    """The assignment of partitions: even to one partition, with the fewest moves, the same for every member.

    Args:
        members: the topics that each member reads.
        partitions: all partitions of those topics.
        owners: the current holder of each partition; members that have left may be among them.
    """
    target: dict[TopicPartition, str] = {}
    held: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    free = []
    for tp in sorted(partitions):
        owner = owners.get(tp)
        if owner in held and tp.topic in members[owner]:
            target[tp] = owner
            held[owner].append(tp)
        else:
            free.append(tp)
    for tp in free:
        able = [member for member in held if tp.topic in members[member]]
        if able:
            chosen = min(able, key=lambda member: len(held[member]))
            target[tp] = chosen
            held[chosen].append(tp)
    while move := _next_move(members, held):
        tp, source, chosen = move
        held[source].remove(tp)
        held[chosen].append(tp)
        target[tp] = chosen
    return target


def _next_move(
    members: Mapping[str, frozenset[str]], held: Mapping[str, list[TopicPartition]]
) -> tuple[TopicPartition, str, str] | None:
    """The partition to move so that two members come closer, if there is one."""
    by_load = sorted(held, key=lambda member: len(held[member]))
    for source in reversed(by_load):
        for chosen in by_load:
            if len(held[source]) - len(held[chosen]) <= 1:
                break
            for tp in reversed(held[source]):
                if tp.topic in members[chosen]:
                    return tp, source, chosen
    return None


class Member:
    """A member of a group: a task that rebalances, fetches, delivers and commits; see `Subscription`."""

    def __init__(
        self,
        coordinator: Coordinator,
        unread: Unread,
        fetch: Fetch,
        changes: Signal,
        handler: Handler,
        on_assigned: OnAssigned | None,
        on_revoked: OnRevoked | None,
        beginning: Callable[[TopicPartition], int],
        resolve: Resolve,
        name: str,
        group: str,
    ) -> None:
        self.member: Final = name
        self._group = group
        self._resolve = resolve
        self._coordinator = coordinator
        self._unread = unread
        self._fetch = fetch
        self._changes = changes
        self._handler = handler
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._beginning = beginning
        self._claims: dict[TopicPartition, Claim] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._seeks: dict[TopicPartition, int] = {}
        self._topics: Mapping[str, int] | None = None
        self._uncommitted: set[TopicPartition] = set()
        self._turn = 0
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="noesium group member")

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """See `Subscription.assignment`."""
        return frozenset(self._positions)

    async def wait(self) -> None:
        """See `Subscription.wait`."""
        await asyncio.shield(self._task)

    def position(self, tp: TopicPartition) -> int | None:
        """See `Subscription.position`."""
        return self._seeks.get(tp, self._positions.get(tp))

    def behind(self, tp: TopicPartition) -> int:
        """See `Subscription.behind`: 0, because the backlog is not counted here."""
        return 0

    def seek(self, starts: Mapping[TopicPartition, int]) -> None:
        """See `Subscription.seek`: a batch is fetched and delivered in one go, so the next one is right."""
        self._seeks.update({tp: offset for tp, offset in starts.items() if tp in self._positions})
        self._changes.notify()

    def change_topics(self, topics: Sequence[str]) -> None:
        """See `Subscription.change_topics`."""
        self._topics = self._resolve(topics)
        self._changes.notify()

    async def tenure(self, tp: TopicPartition) -> MemberTenure:
        """See `Subscription.tenure`."""
        claim = self._claims.get(tp)
        if claim is None or not self._coordinator.holds({tp: claim}):
            raise tenure_ended(tp, f"The member {self.member} of {self._group}")
        return MemberTenure(self._group, self.member, tp, claim.epoch)

    async def close(self) -> None:
        """See `Subscription.close`. `wait` raises the handler's error, not this method."""
        self._closing = True
        self._coordinator.hurry()
        self._changes.notify()
        if asyncio.current_task() is not self._task:
            await asyncio.wait((self._task,))
            if not self._task.cancelled():
                self._task.exception()  # retrieved, so that asyncio does not warn that nobody did

    async def _run(self) -> None:
        beats = None
        if self._coordinator.beat_s is not None:
            beats = asyncio.create_task(self._beat(self._coordinator.beat_s))
        try:
            while not self._closing:
                if beats is not None and beats.done():
                    await beats
                seen = self._changes.count
                try:
                    await self._step()
                except LogFullError:
                    await self._changes.wait(seen, FULL_PAUSE_S, tuple(self._positions))
                except LogUnavailableError:
                    if not self._closing:
                        raise
        finally:
            self._coordinator.hurry()
            # Release in the order of a rebalance: first the owner, which may take longer than a lease, then
            # the table, then the other members.
            try:
                await self._revoke(frozenset(self._positions))
            finally:
                if beats is not None:
                    beats.cancel()
                with suppress(LogFullError, LogUnavailableError):  # the lease expires by itself
                    await self._coordinator.leave()
                self._changes.notify()

    async def _step(self) -> None:
        """One turn: rebalance if something changed; deliver a batch if there is one, else wait."""
        seen = self._changes.count
        topics, self._topics = self._topics, None
        if topics is not None:
            try:
                await self._coordinator.follow(topics)
            except LogFullError:
                self._topics = topics if self._topics is None else self._topics
                raise
        if self._coordinator.changed():
            await self._rebalance()
        if not await self._deliver():
            await self._commit()
            await self._changes.wait(seen, self._coordinator.beat_s, tuple(self._positions))

    async def _beat(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._coordinator.beat()
            except LogFullError:
                continue
            except LogUnavailableError:
                # A closing member is in a hurry, and may need the lease for longer than the log is
                # unavailable.
                if not self._closing:
                    raise

    async def _rebalance(self) -> None:
        plan = await self._coordinator.poll()
        lost = frozenset(
            tp
            for tp, claim in self._claims.items()
            if tp not in plan.held or plan.held[tp].epoch != claim.epoch
        )
        if lost:
            # Another member may hold them already: commit nothing for them.
            self._uncommitted -= lost
            await self._revoke(lost)
        if plan.leaving:
            await self._revoke(plan.leaving)
            await self._coordinator.release(plan.leaving)
            self._changes.notify()
        await self._take({tp: plan.held[tp] for tp in plan.held.keys() - self._claims.keys() - plan.leaving})

    async def _take(self, claims: Mapping[TopicPartition, Claim]) -> None:
        if not claims:
            return
        self._claims.update(claims)
        starts = await self._on_assigned(frozenset(claims)) if self._on_assigned is not None else None
        for tp in sorted(claims):
            start = (starts or {}).get(tp, claims[tp].offset)
            self._positions[tp] = self._beginning(tp) if start is None else start

    async def _revoke(self, partitions: frozenset[TopicPartition]) -> None:
        gone = partitions & self._positions.keys()
        # Revoke even if the log is unavailable: nothing moves the group's offset then.
        with suppress(LogFullError, LogUnavailableError):
            await self._commit()
        for tp in partitions:
            self._positions.pop(tp, None)
            self._seeks.pop(tp, None)
        try:
            if gone and self._on_revoked is not None:
                await self._on_revoked(gone)
        finally:
            for tp in partitions:
                self._claims.pop(tp, None)

    async def _deliver(self) -> bool:
        """Deliver one batch; return False if there is none."""
        batch: list[Record] = []
        moved: dict[TopicPartition, int] = {}
        self._positions.update(self._seeks)
        self._seeks.clear()
        unread = self._unread(self._positions)
        self._turn += 1
        for index in range(len(unread)):
            tp = unread[(index + self._turn) % len(unread)]
            records, after = self._fetch(tp, self._positions[tp], BATCH_RECORDS - len(batch))
            if after != self._positions[tp]:
                moved[tp] = after
                batch.extend(records)
            if len(batch) >= BATCH_RECORDS:
                break
        if not moved:
            return False
        if not self._coordinator.holds({tp: self._claims[tp] for tp in moved}):
            await self._rebalance()
            return True
        if batch:
            await self._handler(batch)
        self._positions.update(moved)
        self._uncommitted.update(moved)
        if batch:
            await self._commit()
        else:
            await asyncio.sleep(0)
        return True

    async def _commit(self) -> None:
        if self._uncommitted:
            uncommitted, self._uncommitted = self._uncommitted, set()
            offsets = {tp: (self._positions[tp], self._claims[tp].epoch) for tp in uncommitted}
            try:
                await self._coordinator.commit(offsets)
            except LogFullError:
                self._uncommitted |= uncommitted
                raise
