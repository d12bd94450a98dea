"""The broker of a simulated world, and the line to it that each process has.

Partitions, transactions and markers are those of `memory://` (`log/memory_store.py`), which are strict. What
is added is what a broker on the other side of a network adds: each operation is a request that is served a
while after it was sent, and answered a while after that. Either may be lost or late, the line may be cut, and
the process may die or stand still in between. So a commit that nobody answered is on the log or not; one that
was held on the way may come when its writer has begun the next transaction, and end that (a broker that
speaks the old transaction protocol cannot tell).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from types import CoroutineType
from typing import Any, Final

from noesium_stream.errors import FencedError, LogFullError, LogUnavailableError
from noesium_stream.log.embedded.group import Claim, MemberTenure, assign
from noesium_stream.log.memory.group import GroupTable
from noesium_stream.log.memory.store import MemoryStore, Txn
from noesium_stream.log.port import Headers, Position, TopicPartition
from noesium_stream.log.prepare import Prepared
from tests.sim.clock import SimClock
from tests.sim.loop import Lane, SimLoop

ANSWER_S: Final = 5.0
"""How long a process waits for the answer to a request."""

TRANSACTION_S: Final = 10.0
"""A transaction that is open for longer is aborted, and its writer fenced."""

SESSION_S: Final = 6.0
"""A member of a group that gave no sign of life for so long has lost its partitions."""

FAULTS: Final = (
    "refused",
    "full",
    "request lost",
    "answer lost",
    "late",
    "slow",
    "dies",
    "dead after",
    "stops",
)


class NoAnswerError(LogUnavailableError):
    """The request was sent; whether it was served nobody knows."""


class Broker:
    """One broker: a store, groups with sessions, transactions with a time limit."""

    def __init__(self, loop: SimLoop, chance: Random) -> None:
        self.lane: Lane = loop.lane("broker")
        self.loop = loop
        self.store = MemoryStore(SimClock(loop, chance), chance.getrandbits(60))
        self.leases: dict[tuple[str, str], float] = {}

    # -- transactions ----------------------------------------------------------------------------------

    async def open_writer(self, writer_id: str) -> int:
        """Fence whoever holds the id, abort what it left, wait for markers; return the epoch."""
        store = self.store
        epoch = store.epochs[writer_id] = store.epochs.get(writer_id, 0) + 1
        left = store.open.pop(writer_id, None)
        if left is not None:
            store.write_markers(left)
        await store.markers_written()
        return epoch

    async def write(
        self, writer_id: str, epoch: int, records: Sequence[Prepared], headers: Sequence[Headers]
    ) -> list[Position]:
        """Write into the open transaction of this writer, or begin one."""
        store = self.store
        await store.markers_written()
        self._check_epoch(writer_id, epoch)
        txn = store.open.get(writer_id)
        if txn is None:
            txn = store.open[writer_id] = Txn()
            self.lane.call_later(TRANSACTION_S, self._time_out, writer_id, txn)
        return store.write(txn, records, headers)

    def prove(self, tenure: MemberTenure | None) -> None:
        """Refuse who is not the member, or not since then, that has the partition."""
        if tenure is not None:
            self._table(tenure.group)
            self.store.check(tenure, "a simulated writer")

    def end(self, writer_id: str, epoch: int, commit: bool) -> None:
        """End whatever transaction of this writer is open: which one was meant is not said."""
        store = self.store
        self._check_epoch(writer_id, epoch)
        txn = store.open.pop(writer_id, None)
        if txn is not None:
            store.finish(txn, commit=commit)

    def _check_epoch(self, writer_id: str, epoch: int) -> None:
        if self.store.epochs.get(writer_id) != epoch:
            raise FencedError(f"The writer {writer_id} was fenced: a newer one holds its id.")

    def _time_out(self, writer_id: str, txn: Txn) -> None:
        store = self.store
        if store.open.get(writer_id) is txn:
            del store.open[writer_id]
            store.epochs[writer_id] += 1
            store.finish(txn, commit=False)

    # -- groups ----------------------------------------------------------------------------------------

    def beat(self, group: str, member: str) -> int | None:
        """A sign of life; return the group's generation, None: it does not know this member."""
        table = self._table(group)
        if member not in table.members:
            return None
        self.leases[group, member] = self.loop.time() + SESSION_S
        return table.generation

    def poll(
        self, group: str, member: str, topics: Mapping[str, int]
    ) -> tuple[int, dict[TopicPartition, Claim], frozenset[TopicPartition]]:
        """Join if need be, take what is free: generation, what it holds, what of that is to go."""
        table = self._table(group)
        if table.members.get(member) != frozenset(topics):
            table.members[member] = frozenset(topics)
            table.partitions.update(
                TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)
            )
            table.generation += 1
        self.leases[group, member] = self.loop.time() + SESSION_S
        target = assign(table.members, table.partitions, table.owners)
        for tp, chosen in target.items():
            if chosen == member and tp not in table.owners:
                table.owners[tp] = member
                table.epochs[tp] = table.epochs.get(tp, 0) + 1
        held = {
            tp: Claim(table.epochs[tp], table.offsets.get(tp))
            for tp, owner in table.owners.items()
            if owner == member
        }
        return table.generation, held, frozenset(tp for tp in held if target.get(tp) != member)

    def commit_offsets(
        self, group: str, member: str, offsets: Mapping[TopicPartition, tuple[int, int]]
    ) -> None:
        """Set the group's offsets where this member holds the partition in that epoch."""
        table = self._table(group)
        for tp, (offset, epoch) in offsets.items():
            if table.owners.get(tp) == member and table.epochs[tp] == epoch:
                table.offsets[tp] = offset

    def release(self, group: str, member: str, partitions: Sequence[TopicPartition]) -> None:
        """Let others take these."""
        table = self._table(group)
        for tp in partitions:
            if table.owners.get(tp) == member:
                del table.owners[tp]
        self._changed(table)

    def leave(self, group: str, member: str) -> None:
        """The member is gone."""
        self._drop(group, self._table(group), member)

    def _table(self, group: str) -> GroupTable:
        table = self.store.groups.setdefault(group, GroupTable())
        now = self.loop.time()
        for member in [m for m in table.members if self.leases.get((group, m), now) < now]:
            self._drop(group, table, member)
        return table

    def _drop(self, group: str, table: GroupTable, member: str) -> None:
        table.members.pop(member, None)
        self.leases.pop((group, member), None)
        for tp in [tp for tp, owner in table.owners.items() if owner == member]:
            del table.owners[tp]
        self._changed(table)

    def _changed(self, table: GroupTable) -> None:
        table.generation += 1
        self.store.changes.notify()


class Link:
    """The line from one process to the broker.

    Args:
        odds: how probable each of `FAULTS` is, per request.

    Attributes:
        cut: nothing gets through.
        clear: for how long (virtual time) no fault is drawn: not before the process runs.
    """

    def __init__(self, broker: Broker, lane: Lane, chance: Random, odds: Mapping[str, float]) -> None:
        self.broker = broker
        self._there = broker.lane.context
        self.lane = lane
        self.chance = chance
        self.odds = dict(odds)
        self.cut = False
        self.faults: list[str] = []
        self._total = sum(self.odds.values())

    def calm(self) -> None:
        """No faults any more."""
        self.odds, self._total, self.cut = {}, 0.0, False
        self.broker.store.changes.notify()

    def _draw(self) -> str | None:
        if not self._total or self.chance.random() >= self._total:
            return None
        [fault] = self.chance.choices(list(self.odds), list(self.odds.values()))
        self.faults.append(fault)
        return fault

    def latency(self) -> float:
        """Seconds that a message is on its way."""
        return 0.0002 + self.chance.random() * 0.004

    async def call(self, work: Callable[[], Any], *, fills: bool = False) -> Any:
        """Have the broker do something; `fills`: it takes room on its disk.

        Raises:
            NoAnswerError: it was sent, and nobody answered.
            LogUnavailableError, LogFullError: it was not sent.
        """
        loop, lane = self.broker.loop, self.lane
        fault = self._draw()
        if fault == "dies":
            lane.kill()
            await loop.create_future()
        if fault == "stops":
            lane.pause(self.chance.uniform(0.1, 25.0))
            await asyncio.sleep(0)
        if self.cut or fault == "refused":
            await asyncio.sleep(self.chance.uniform(0.001, 1.0))
            raise LogUnavailableError("no connection to the simulated broker")
        if fault == "full" and fills:
            raise LogFullError("the simulated broker's disk is full")
        answer = loop.create_future()
        delay_s = self.latency()
        if fault == "late":
            delay_s = self.chance.uniform(0.5, 2 * ANSWER_S)
        elif fault == "slow":
            delay_s = self.chance.uniform(0.01, ANSWER_S / 2)
        if fault != "request lost":
            loop.call_later(delay_s, self._serve, work, answer, fault, context=self._there)
        patience = loop.call_later(ANSWER_S, _give_up, answer)
        try:
            return await answer
        finally:
            patience.cancel()

    def _serve(self, work: Callable[[], Any], answer: asyncio.Future[Any], fault: str | None) -> None:
        if self.cut:
            return
        try:
            value = work()
        except Exception as error:
            self._served(answer, fault, None, error)
        else:
            if isinstance(value, CoroutineType):
                self.broker.lane.spawn(self._finish(value, answer, fault), "serve")
            else:
                self._served(answer, fault, value, None)

    async def _finish(
        self, work: Coroutine[Any, Any, Any], answer: asyncio.Future[Any], fault: str | None
    ) -> None:
        value = error = None
        try:
            value = await work
        except Exception as raised:
            error = raised
        self._served(answer, fault, value, error)

    def _served(
        self, answer: asyncio.Future[Any], fault: str | None, value: Any, error: Exception | None
    ) -> None:
        if fault == "dead after":
            self.lane.kill()
        elif fault != "answer lost":
            self.broker.loop.call_later(
                self.latency(), self._answer, answer, value, error, context=self._there
            )

    def _answer(self, answer: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
        if answer.done() or self.cut:
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(value)


def _give_up(answer: asyncio.Future[Any]) -> None:
    if not answer.done():
        answer.set_exception(NoAnswerError("no answer from the simulated broker"))
