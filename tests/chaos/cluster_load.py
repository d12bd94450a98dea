"""Work for workers under faults: clients that ask, people who answer, facts for a handler, and a reader.

All of it goes by a line of its own to the brokers, and is patient: what the log does not take is sent again
under the same idempotency key.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from random import Random
from typing import Any, Final

from noesium_stream.client import Client, Run
from noesium_stream.errors import (
    ApprovalClosedError,
    ApprovalError,
    CommitUnknownError,
    EffectDecisionError,
    LogFullError,
    LogUnavailableError,
    RunEndedError,
    RunNotFoundError,
)
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from tests.chaos.cluster_outside import Ledger
from tests.chaos.workload import KEYS, KINDS, SUMS, Counted, Summed
from tests.sim.cast import CALLER, CARRIER, GO, ParcelSeen, answer_of
from tests.support import invariants
from tests.support.invariants import Asked, Book, Folded

AWAY: Final = (LogUnavailableError, LogFullError, CommitUnknownError)
CLOSED: Final = (ApprovalClosedError, ApprovalError, EffectDecisionError, RunEndedError, RunNotFoundError)
_PAUSE_S: Final = 0.3


class Load:
    """See above.

    Args:
        log: where to ask; the load does not close it.
        chance: what is asked for, and when.
        per_s: commands a second; twice as many facts.
        ledger: what was done outside.
        alive: the names of the processes that have not ended.
    """

    def __init__(
        self,
        log: EventLog,
        chance: Random,
        per_s: float,
        ledger: Ledger,
        alive: Callable[[], Collection[str]],
    ) -> None:
        self.log = log
        self.reader = Reader(log, chance.randrange(50, 500))
        self.asked: dict[str, Asked] = {}
        self.facts: list[tuple[str, int]] = []
        self._chance = chance
        self._per_s = per_s
        self._ledger = ledger
        self._alive = alive
        self._client = Client(log)
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
        self._asking = [asyncio.create_task(self._ask()), asyncio.create_task(self._count())]

    async def stop_asking(self) -> None:
        """Ask for nothing new; what was begun to be sent is sent.

        It is not broken off: what a client has once sent may reach the log when nobody looks any more.
        """
        self._stopping = True
        await _ended(self._asking)
        await _ended(list(self._sending))

    def caught_up(self) -> bool:
        """Whether all that was asked for has an outcome, and all facts were handled.

        Raises what went wrong here.
        """
        for task in self._going_on:
            if task.done():
                task.result()
        return self.reader.all_ended(self.asked) and self.reader.sums >= len(self.facts)

    async def end(self) -> None:
        """End; raises what went wrong here."""
        for task in self._going_on:
            task.cancel()
        await _ended(self._going_on)
        await self._client.__aexit__(None, None, None)

    def missing(self) -> list[str]:
        """What is not dealt with yet."""
        reader = self.reader
        lines = [f"run {run_id}: {reader.last.get(run_id)}" for run_id in reader.open_runs(self.asked)]
        behind = reader.sums < len(self.facts)
        return [*lines, *([f"{reader.sums} of {len(self.facts)} facts"] if behind else [])]

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
        run: Run = await patiently(ask)
        gives = {"got": [answer_of(order) for order in orders]}
        self.asked[run.id] = Asked(run.id, kind, [gives])
        for order in orders:
            if order[0] == "signal":
                await patiently(partial(run.signal, GO, GO))
        if cancel:
            await asyncio.sleep(self._chance.random() * 2.0)
            await patiently(partial(run.cancel, "enough"))

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
                await patiently(partial(self._client.publish, Counted(number=number + 1), key=key))
                self.facts.append((key, number + 1))

    # -- people ----------------------------------------------------------------------------------------

    async def _help(self) -> None:
        answered: set[str] = set()
        while True:
            await asyncio.sleep(_PAUSE_S)
            for kind, run_id, approval_id in self.reader.questions():
                if approval_id not in answered:
                    answered.add(approval_id)
                    self._send(partial(self._client.handle(kind, run_id).approve, approval_id))
            for kind, run_id, effect_id in self.reader.unknown():
                self._decide(self._client.handle(kind, run_id), effect_id, answered)

    def _decide(self, run: Run, effect_id: str, answered: set[str]) -> None:
        status, result = self._ledger.status(effect_id, self._alive())
        again = f"{effect_id} {self.reader.times_unknown(effect_id)}"
        if status == "running" or again in answered:
            return
        answered.add(again)
        decision = "result" if status == "done" else self._chance.choice(("retry", "retry", "fail"))

        async def decide() -> None:
            try:
                await run.resolve_effect(effect_id, decision, result)
            except EffectDecisionError:
                answered.discard(again)  # not in this way: what is being undone is not done again
                raise

        self._send(decide)

    def _send(self, send: Callable[[], Awaitable[Any]]) -> None:
        task = asyncio.create_task(_closed_by_then(send))
        self._sending.add(task)
        task.add_done_callback(self._sent)


class Reader:
    """Reads the journals and the sums live: what people see, and a fold to compare with.

    Attributes:
        sums: how many the handler has made.
        last: by run, its last event.
    """

    def __init__(self, log: EventLog, snapshot_at: int) -> None:
        self.sums = 0
        self.last: dict[str, str] = {}
        self._log = log
        self._seen: dict[str, list[Record]] = {kind: [] for kind in KINDS}
        self._state: Folded = {}
        self._snapshot: tuple[Folded, dict[str, dict[int, int]]] | None = None
        self._snapshot_at = snapshot_at
        self._cursor: dict[str, dict[int, int]] = {kind: {} for kind in KINDS}
        self._open: dict[str, str] = {}
        self._ended: set[str] = set()
        self._called: set[str] = set()
        self._questions: dict[str, tuple[str, str, str]] = {}
        self._unknown: dict[str, tuple[str, str, str]] = {}
        self._times: dict[str, int] = {}

    def begin(self) -> list[asyncio.Task[None]]:
        """Begin to read."""
        tasks = [asyncio.create_task(self._journal(kind)) for kind in KINDS]
        return [*tasks, asyncio.create_task(self._sums())]

    async def _journal(self, kind: str) -> None:
        topic, cursor = self._log.topology.journal(kind), self._cursor[kind]
        count = self._log.topology.spec(topic).partitions
        cursor.update(dict.fromkeys(range(count), 0))
        while True:
            try:
                async for batch in self._log.read_batches(topic, dict(cursor)):
                    for record in batch:
                        self._take(kind, record)
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

    def _take(self, kind: str, record: Record) -> None:
        self._seen[kind].append(record)
        invariants.fold(self._state, record)
        self._cursor[kind][record.partition] = record.offset + 1
        self._snapshot_at -= 1
        if self._snapshot_at == 0:
            self._snapshot = dict(self._state), {kind: dict(at) for kind, at in self._cursor.items()}
        event, run_id, payload = record.envelope, record.key, record.envelope.payload
        self.last[run_id] = event.event_type
        if event.event_type == "run.started":
            self._open[run_id] = kind
        elif event.event_type in invariants.TERMINAL:
            self._ended.add(run_id)
        elif event.event_type == "capability.invoked" and event.partition_key != run_id:
            self._called.add(payload["run_id"])
        elif event.event_type == "approval.requested":
            self._questions[payload["approval_id"]] = (kind, run_id, payload["approval_id"])
        elif event.event_type in ("approval.answered", "approval.expired"):
            self._questions.pop(payload["approval_id"], None)
        elif event.event_type == "effect.outcome.unknown" or payload.get("awaits_decision"):
            effect_id = payload["effect_id"]
            self._unknown[effect_id] = (kind, run_id, effect_id)
            self._times[effect_id] = self._times.get(effect_id, 0) + 1
        elif event.event_type in ("effect.resolved", "effect.completed"):
            self._unknown.pop(payload["effect_id"], None)

    def questions(self) -> list[tuple[str, str, str]]:
        """Open ones: agent type, run, question."""
        return [found for found in self._questions.values() if found[1] not in self._ended]

    def unknown(self) -> list[tuple[str, str, str]]:
        """Effects that wait for a person: agent type, run, effect."""
        return [found for found in self._unknown.values() if found[1] not in self._ended]

    def times_unknown(self, effect_id: str) -> int:
        """How often the outcome of this effect was unknown."""
        return self._times.get(effect_id, 0)

    def open_runs(self, asked: Collection[str]) -> set[str]:
        """Runs that are known of and have not ended."""
        return (self._open.keys() | set(asked) | self._called) - self._ended

    def all_ended(self, asked: Collection[str]) -> bool:
        """Whether all runs that are known of have ended."""
        return not self.open_runs(asked)

    def faults(self, book: Book) -> Iterator[str]:
        """Where a live reader, a reader from a snapshot and one from the beginning differ."""
        whole: Folded = {}
        tail, cursor = self._snapshot or ({}, {})
        tail = dict(tail)
        for kind, records in book.journals.items():
            if kind in self._seen:
                yield from invariants.seen_otherwise(self._seen[kind], records)
                for record in records:
                    invariants.fold(whole, record)
                    if record.offset >= cursor.get(kind, {}).get(record.partition, 0):
                        invariants.fold(tail, record)
        if whole != self._state:
            yield "diverged: the state that was folded live is another than that from the beginning"
        if whole != tail:
            yield "diverged: the state from a snapshot on is another than that from the beginning"


async def patiently(send: Callable[[], Awaitable[Any]]) -> Any:
    """Send until the log has it."""
    while True:
        try:
            return await send()
        except AWAY:
            await asyncio.sleep(_PAUSE_S)


async def _closed_by_then(send: Callable[[], Awaitable[Any]]) -> None:
    """Send until the log has it; what is closed by then needs nothing."""
    with contextlib.suppress(*CLOSED):
        await patiently(send)


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result
