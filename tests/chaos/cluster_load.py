"""Work for workers under faults: clients that ask, people who answer, facts for a handler, and a reader.

All of it goes by a line of its own to the brokers, and is patient: what the log does not take is sent again
under the same idempotency key. Facts come one by one, and many at once: what a handler makes of some is on
its way to the log when the next ones are there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from noesium_stream.client import Client, Run
from noesium_stream.clock import SystemClock
from noesium_stream.errors import EffectDecisionError, LogUnavailableError
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.log.port import EventLog
from tests.chaos.cluster_outside import Ledger
from tests.chaos.workload import KEYS, KINDS, SUMS, Counted, Summed
from tests.sim.cast import CALLER, CARRIER, GO, ParcelSeen, answer_of
from tests.support.invariants import Asked, Book
from tests.support.watching import Watch, decision, patiently, unless_closed

BURSTS: Final = (50, 200, 1_000)
"""So many facts come at once, or a few at a time as fast as the log takes them."""

A_FEW: Final = 5
BURST_EVERY_S: Final = 2.0
"""On average, from the end of one to the next."""

SENDER: Final = AgentRef("counter", "counter")
_PAUSE_S: Final = 0.3


class Load:
    """See above.

    Args:
        log: where to ask; the load does not close it.
        chance: what is asked for, and when.
        bursts: the same, of facts that come many at once.
        per_s: commands a second; twice as many facts that come one by one.
        ledger: what was done outside.
        alive: the names of the processes that have not ended.
    """

    def __init__(
        self,
        log: EventLog,
        chance: Random,
        bursts: Random,
        per_s: float,
        ledger: Ledger,
        alive: Callable[[], Collection[str]],
    ) -> None:
        self.log = log
        self.reader = Reader(log, chance.randrange(50, 500))
        self.asked: dict[str, Asked] = {}
        self.facts: list[tuple[str, int]] = []
        self._chance = chance
        self._bursts = bursts
        self._to_sum = 0
        self._per_s = per_s
        self._ledger = ledger
        self._alive = alive
        self._client = Client(log)
        self._clock = SystemClock()
        self._words = 0
        self._stopping = False
        self._asking: list[asyncio.Task[None]] = []
        self._going_on: list[asyncio.Task[None]] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Begin to ask, to answer and to read."""
        topology = self.log.topology
        names = [topology.events("things"), topology.events("sums"), topology.journal(SUMS)]
        for kind in KINDS:
            names += [topology.journal(kind), topology.inbox(kind)]
        await self.log.ensure_topics([topology.spec(name) for name in names])
        for event in (Counted, Summed, ParcelSeen):
            self.log.catalogue.register(event)
        await self._client.__aenter__()
        self._going_on = [asyncio.create_task(self._help(), name="help"), *self.reader.begin()]
        asking = (self._ask, self._count, self._count_many)
        self._asking = [asyncio.create_task(ask()) for ask in asking]

    async def stop_asking(self) -> None:
        """Ask for nothing new; what was begun to be sent is sent.

        It is not broken off: what a client has once sent may reach the log when nobody looks any more.
        """
        self._stopping = True
        await _ended(self._asking)
        await _ended(list(self._sending))
        # What was sent again, since nobody said whether it was there, may be there twice.
        self._to_sum = await patiently(self._facts_there, _PAUSE_S)

    async def _facts_there(self) -> int:
        topic = self.log.topology.events("things")
        until = await self.log.end(topic)
        return sum([len(batch) async for batch in self.log.read_batches(topic, {}, until=until)])

    def caught_up(self) -> bool:
        """Whether all that was asked for has an outcome, and all facts were handled.

        Raises what went wrong here.
        """
        for task in self._going_on:
            if task.done():
                task.result()
        return not self.reader.watch.open_runs(self.asked) and self.reader.sums >= self._to_sum

    async def end(self) -> None:
        """End; raises what went wrong here."""
        for task in self._going_on:
            task.cancel()
        await _ended(self._going_on)
        await self._client.__aexit__(None, None, None)

    def missing(self) -> list[str]:
        """What is not dealt with yet."""
        reader = self.reader
        watch = reader.watch
        lines = [f"run {run_id}: {watch.last.get(run_id)}" for run_id in watch.open_runs(self.asked)]
        behind = reader.sums < self._to_sum
        return [*lines, *([f"{reader.sums} of {self._to_sum} facts"] if behind else [])]

    # -- clients ---------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self._chance.expovariate(self._per_s))
            task = asyncio.create_task(self._one(self._orders()))
            self._sending.add(task)
            task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            self._sending.discard(task)  # a failure is kept, and raised by `stop_asking`

    async def _one(self, orders: list[Any]) -> None:
        kind = CALLER if self._chance.random() < 0.8 else CARRIER
        cancel = self._chance.random() < 0.03
        self._words += 1
        key = f"command {self._words}"
        ask = partial(self._client.start, kind, {"orders": orders}, idempotency_key=key)
        run: Run = await patiently(ask, _PAUSE_S)
        gives = {"got": [answer_of(order) for order in orders]}
        self.asked[run.id] = Asked(run.id, kind, [gives])
        for order in orders:
            if order[0] == "signal":
                await patiently(partial(run.signal, GO, GO), _PAUSE_S)
        if cancel:
            await asyncio.sleep(self._chance.random() * 2.0)
            await patiently(partial(run.cancel, "enough"), _PAUSE_S)

    def _orders(self) -> list[Any]:
        chance = self._chance
        orders = [self._order(0) for _ in range(chance.choice((1, 1, 2, 3)))]
        return [*orders, ["fail"]] if chance.random() < 0.04 else orders

    def _order(self, depth: int) -> list[Any]:
        chance = self._chance
        kinds = [
            "pure",
            "idempotent",
            "external",
            "external",
            "external",
            "undoable",
            "ask",
            "ask soon",
            "nap",
        ]
        kinds += ["emit", "signal", "call", "call", "fan"] if depth == 0 else []
        kind = chance.choice(kinds)
        self._words += 1
        word = f"w{self._words}"
        if kind in ("idempotent", "external", "undoable"):
            return [kind, f"{word}!" if chance.random() < 0.1 else word]
        if kind in ("pure", "ask", "emit"):
            return [kind, word]
        if kind == "ask soon":
            return [kind, word, round(chance.uniform(0.2, 2.0), 3)]
        if kind == "nap":
            return [kind, round(chance.random() * 2.0, 3)]
        if kind == "signal":
            return [kind, GO]
        inner = [self._order(1) for _ in range(chance.choice((1, 2, 2)))]
        return [kind, inner]

    async def _count(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self._chance.expovariate(self._per_s))
            key = self._chance.choice(KEYS)
            for number in range(2):
                # Nobody knows of one that was not acknowledged: it is no fact that was promised.
                fact = Counted(number=number + 1)
                await patiently(partial(self._client.publish, fact, key=key), _PAUSE_S)
                self.facts.append((key, number + 1))

    async def _count_many(self) -> None:
        chance = self._bursts
        while not self._stopping:
            await asyncio.sleep(chance.expovariate(1 / BURST_EVERY_S))
            burst = chance.choice(BURSTS)
            at_once = chance.choice((burst, A_FEW, A_FEW))
            for first in range(0, burst, at_once):
                facts = [(chance.choice(KEYS), first + number + 1) for number in range(at_once)]
                await patiently(partial(self._append, facts), _PAUSE_S)
                self.facts += facts
                if self._stopping:
                    break

    async def _append(self, facts: Sequence[tuple[str, int]]) -> None:
        trace = TraceContext(self._clock.token(16), self._clock.token(8))
        await self.log.append(
            [
                Counted(number=number).to_envelope(SENDER, trace, partition_key=key, clock=self._clock)
                for key, number in facts
            ]
        )

    # -- people ----------------------------------------------------------------------------------------

    async def _help(self) -> None:
        answered: set[str] = set()
        while True:
            await asyncio.sleep(_PAUSE_S)
            for kind, run_id, approval_id in self.reader.watch.questions():
                if approval_id not in answered:
                    answered.add(approval_id)
                    self._send(partial(self._client.run_handle(kind, run_id).approve, approval_id))
            for kind, run_id, effect_id in self.reader.watch.unknown():
                self._decide(self._client.run_handle(kind, run_id), effect_id, answered)

    def _decide(self, run: Run, effect_id: str, answered: set[str]) -> None:
        status, result = self._ledger.status(effect_id, self._alive())
        again = f"{effect_id} {self.reader.watch.times_unknown(effect_id)}"
        decided = decision(status, self._chance)
        if decided is None or again in answered:
            return
        answered.add(again)

        async def decide() -> None:
            try:
                await run.resolve_effect(effect_id, decided, result)
            except EffectDecisionError:
                answered.discard(again)  # not in this way: what is being undone is not done again
                raise

        self._send(decide)

    def _send(self, send: Callable[[], Awaitable[Any]]) -> None:
        task = asyncio.create_task(unless_closed(send, _PAUSE_S))
        self._sending.add(task)
        task.add_done_callback(self._sent)


class Reader:
    """Reads the journals and the sums live: what people see, and a fold to compare with.

    Attributes:
        watch: what is known of the runs.
        sums: how many the handler has made.
    """

    def __init__(self, log: EventLog, snapshot_at: int) -> None:
        self.watch = Watch(snapshot_at)
        self.sums = 0
        self._log = log

    def begin(self) -> list[asyncio.Task[None]]:
        """Begin to read."""
        tasks = [asyncio.create_task(self._journal(kind)) for kind in KINDS]
        return [*tasks, asyncio.create_task(self._sums())]

    async def _journal(self, kind: str) -> None:
        topic = self._log.topology.journal(kind)
        start = dict.fromkeys(range(self._log.topology.spec(topic).partitions), 0)
        while True:
            try:
                cursor = start | self.watch.position(kind)
                async for batch in self._log.read_batches(topic, cursor):
                    for record in batch:
                        self.watch.take(kind, record)
            except LogUnavailableError:
                await asyncio.sleep(_PAUSE_S)

    async def _sums(self) -> None:
        topic = self._log.topology.events("sums")
        cursor = dict.fromkeys(range(self._log.topology.spec(topic).partitions), 0)
        while True:
            try:
                async for batch in self._log.read_batches(topic, dict(cursor)):
                    self.sums += len(batch)
                    cursor.update((record.partition, record.offset + 1) for record in batch)
            except LogUnavailableError:
                await asyncio.sleep(_PAUSE_S)

    def faults(self, book: Book) -> Iterator[str]:
        """Where a live reader, a reader from a snapshot and one from the beginning differ."""
        journals = {kind: records for kind, records in book.journals.items() if kind in KINDS}
        yield from self.watch.faults(replace(book, journals=journals))


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
