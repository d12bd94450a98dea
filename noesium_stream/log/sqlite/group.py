"""Consumer groups of the SQLite backend: tables with leases, shared by processes.

A member renews its lease every `BEAT_S`. If it has not for `LEASE_S`, any other member drops it, and its
partitions are free (`leases` says how clocks and standstills count). So it is at once when its process has
died (`alive`). Every change increments the group's generation, which the other members watch.

No clock protects the log. A partition's epoch rises with each taking, and a writer's with each opening; the
transaction that writes compares them. A member that is dropped while it lives, because a clock was set, loses
its work since its last commit, and nothing else.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from noesium_stream.clock import Clock
from noesium_stream.log.embedded.group import Claim, MemberTenure, Plan, assign, shares
from noesium_stream.log.embedded.store import Topic
from noesium_stream.log.port import GroupShare, TopicPartition
from noesium_stream.log.sqlite.alive import LifeLock, dead_members
from noesium_stream.log.sqlite.file import PATIENCE_S, is_busy, patiently, translate
from noesium_stream.log.sqlite.leases import LeaseWatch
from noesium_stream.log.sqlite.wake import Waker

BEAT_S: Final = 1.0
LEASE_S: Final = 4.0
GOODBYE_S: Final = 1.0
"""How long a leaving member waits for the lock; if it does not get the lock, the lease expires."""

_SET_OFFSET: Final = (
    "UPDATE grp_partition SET next_offset = ? WHERE grp = ? AND topic = ? AND partition = ? AND owner = ? "
    "AND epoch = ?"
)

T = TypeVar("T")


def group_shares(path: Path, connection: sqlite3.Connection, group: str, now_ms: int) -> list[GroupShare]:
    """See `EventLog.members`; a member that has died, or whose lease has expired, has no partitions.

    So has one whose lease ends more than two lengths ahead: it is either dead, or its clock is wrong.
    """
    rows = connection.execute(
        "SELECT member FROM grp_member WHERE grp = ? AND lease_ms BETWEEN ? AND ?",
        (group, now_ms, now_ms + round(2 * LEASE_S * 1000)),
    ).fetchall()
    joined = [member for (member,) in rows]
    dead = dead_members(path, group, joined)
    owners = connection.execute(
        "SELECT topic, partition, owner FROM grp_partition WHERE grp = ? AND owner IS NOT NULL", (group,)
    ).fetchall()
    return shares(
        (member for member in joined if member not in dead),
        {TopicPartition(topic, number): owner for topic, number, owner in owners},
    )


def drop_members(connection: sqlite3.Connection, group: str, members: Iterable[str]) -> None:
    """Free what these members of a group hold; runs within the caller's transaction."""
    for member in members:
        connection.execute("DELETE FROM grp_member WHERE grp = ? AND member = ?", (group, member))
        connection.execute(
            "UPDATE grp_partition SET owner = NULL WHERE grp = ? AND owner = ?", (group, member)
        )
    _count_up(connection, group)


def _count_up(connection: sqlite3.Connection, group: str) -> None:
    connection.execute(
        "INSERT INTO grp(name, generation) VALUES(?, 1) "
        "ON CONFLICT(name) DO UPDATE SET generation = generation + 1",
        (group,),
    )


def is_held(connection: sqlite3.Connection, tenure: MemberTenure) -> bool:
    """Whether the group still leaves a partition to the member; runs within the caller's transaction."""
    group, member, tp, epoch = tenure
    row = connection.execute(
        "SELECT 1 FROM grp_partition WHERE grp = ? AND topic = ? AND partition = ? AND owner = ? "
        "AND epoch = ?",
        (group, tp.topic, tp.partition, member, epoch),
    ).fetchone()
    return row is not None


class SqliteCoordinator:
    """One member's view of its group's tables; see `Coordinator`."""

    beat_s: float | None = BEAT_S

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        clock: Clock,
        waker: Waker,
        group: str,
        member: str,
        topics: Sequence[Topic],
    ) -> None:
        self._path = path
        self._connection = connection
        self._clock = clock
        self._waker = waker
        self._tell = waker.tell
        self._group = group
        self._member = member
        self._read({topic.name: topic.partitions for topic in topics})
        self._seen = -1
        self._leases = LeaseWatch()
        self._life = LifeLock(path, group, member)
        self._others: list[str] = []
        self._looked_at = waker.deaths
        self._patience_s = PATIENCE_S

    def hurry(self) -> None:
        """From now on, wait for the lock at most `GOODBYE_S`."""
        self._patience_s = GOODBYE_S

    def _read(self, topics: Mapping[str, int]) -> None:
        self._topics = json.dumps(sorted(topics))
        self._partitions = [
            TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)
        ]

    def changed(self) -> bool:
        """Whether the group has changed since the last `poll`."""
        return self._seen != self._generation() or self._someone_died()

    def _someone_died(self) -> bool:
        deaths = self._waker.deaths
        if deaths == self._looked_at:
            return False
        self._looked_at = deaths
        return any(map(self._life.has_died, self._others))

    async def poll(self) -> Plan:
        """Renew the lease, drop members that have died or whose lease has expired, take free partitions."""
        self._live()
        plan, changed = await self._transact(self._poll)
        if changed:
            self._tell()
        return plan

    def _poll(self) -> tuple[Plan, bool]:
        changed = self._renew()
        rows = self._connection.execute(
            "SELECT topic, partition, owner, epoch, next_offset FROM grp_partition WHERE grp = ?",
            (self._group,),
        ).fetchall()
        claims = {
            TopicPartition(topic, number): Claim(epoch, offset) for topic, number, _, epoch, offset in rows
        }
        owners = {TopicPartition(row[0], row[1]): row[2] for row in rows if row[2] is not None}
        target = assign(self._members(), claims.keys() | set(self._partitions), owners)
        mine = {tp for tp, member in target.items() if member == self._member}
        for tp in sorted(mine - owners.keys()):
            claims[tp] = self._take(tp)
            owners[tp] = self._member
        held = {tp: claims[tp] for tp, owner in owners.items() if owner == self._member}
        self._seen = self._generation()
        return Plan(held, frozenset(held.keys() - mine)), changed

    async def beat(self) -> None:
        """Renew the lease; drop members that have died or whose lease has expired."""
        self._live()
        if await self._transact(self._renew):
            self._tell()

    def holds(self, claims: Mapping[TopicPartition, Claim]) -> bool:
        """Whether all of these are still this member's, in these epochs."""
        try:
            return all(
                is_held(self._connection, MemberTenure(self._group, self._member, tp, claim.epoch))
                for tp, claim in claims.items()
            )
        except sqlite3.Error as error:
            raise translate(self._path, error) from error

    async def commit(self, offsets: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Set the group's next offsets, if this member still holds the partition in that epoch."""
        rows = [
            (offset, self._group, tp.topic, tp.partition, self._member, epoch)
            for tp, (offset, epoch) in offsets.items()
        ]
        if len(rows) == 1:
            # One statement is a transaction of its own; it waits only while another process holds the lock.
            try:
                self._connection.execute(_SET_OFFSET, rows[0])
            except sqlite3.Error as error:
                if not is_busy(error):
                    raise translate(self._path, error) from error
            else:
                return
        await self._transact(lambda: self._connection.executemany(_SET_OFFSET, rows))

    async def follow(self, topics: Mapping[str, int]) -> None:
        """Read these topics from now on."""
        self._read(topics)

        def work() -> None:
            self._connection.execute(
                "UPDATE grp_member SET topics = ? WHERE grp = ? AND member = ?",
                (self._topics, self._group, self._member),
            )
            self._count_up()

        await self._transact(work)
        self._tell()

    async def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Release these partitions to other members."""
        rows = [(self._group, tp.topic, tp.partition, self._member) for tp in partitions]

        def work() -> None:
            self._connection.executemany(
                "UPDATE grp_partition SET owner = NULL "
                "WHERE grp = ? AND topic = ? AND partition = ? AND owner = ?",
                rows,
            )
            self._count_up()

        await self._transact(work)
        self._tell()

    async def leave(self) -> None:
        """Release everything."""
        try:
            await self._transact(lambda: drop_members(self._connection, self._group, [self._member]))
        finally:
            self._life.let_go()
        self._tell()

    def _live(self) -> None:
        self._life.hold()
        self._waker.watch_life()

    def _renew(self) -> bool:
        """Renew the lease; return whether the group changed, by this or by the expiry of other leases."""
        now_ms = self._clock.now_ms()
        execute = self._connection.execute
        leases = execute(
            "SELECT member, lease_ms FROM grp_member WHERE grp = ? AND member <> ?",
            (self._group, self._member),
        ).fetchall()
        late = set(self._leases.expired(leases, now_ms, self._clock.monotonic(), LEASE_S))
        late.update(member for member, _ in leases if self._life.has_died(member))
        if late:
            drop_members(self._connection, self._group, sorted(late))
        self._others = [member for member, _ in leases if member not in late]
        lease_ms = now_ms + round(LEASE_S * 1000)
        renewed = execute(
            "UPDATE grp_member SET lease_ms = ? WHERE grp = ? AND member = ?",
            (lease_ms, self._group, self._member),
        ).rowcount
        if not renewed:
            execute(
                "INSERT INTO grp_member(grp, member, topics, lease_ms) VALUES(?, ?, ?, ?)",
                (self._group, self._member, self._topics, lease_ms),
            )
            self._count_up()
        return bool(late) or not renewed

    def _take(self, tp: TopicPartition) -> Claim:
        [(epoch, offset)] = self._connection.execute(
            "INSERT INTO grp_partition(grp, topic, partition, owner, epoch) VALUES(?1, ?2, ?3, ?4, 1) "
            "ON CONFLICT(grp, topic, partition) DO UPDATE SET owner = ?4, epoch = epoch + 1 "
            "RETURNING epoch, next_offset",
            (self._group, tp.topic, tp.partition, self._member),
        ).fetchall()
        return Claim(epoch, offset)

    def _members(self) -> dict[str, frozenset[str]]:
        rows = self._connection.execute(
            "SELECT member, topics FROM grp_member WHERE grp = ?", (self._group,)
        ).fetchall()
        return {member: frozenset(json.loads(topics)) for member, topics in rows}

    def _generation(self) -> int:
        try:
            row = self._connection.execute(
                "SELECT generation FROM grp WHERE name = ?", (self._group,)
            ).fetchone()
        except sqlite3.Error as error:
            raise translate(self._path, error) from error
        return int(row[0]) if row else 0

    def _count_up(self) -> None:
        _count_up(self._connection, self._group)

    async def _transact(self, work: Callable[[], T]) -> T:
        def whole() -> T:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                result = work()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            return result

        return await patiently(self._path, whole, lambda: self._patience_s)
