"""Who is beside the workers: a reader that follows the journals live, and people who answer and decide."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from noesium_stream.client import Client
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
from tests.chaos.ledger import read_ledger
from tests.chaos.workload import KINDS
from tests.support import invariants
from tests.support.invariants import Call, Folded

AWAY = (LogUnavailableError, LogFullError, CommitUnknownError)
CLOSED = (ApprovalClosedError, ApprovalError, EffectDecisionError, RunEndedError, RunNotFoundError)


class Reader:
    """Reads all journals live.

    Attributes:
        seen: what it was given, by agent type.
        ended: runs that have an outcome; `known`: those that have begun, or that another one asked for.
        state, snapshot: what it has folded, and that as it was once, with the cursor of then.
    """

    def __init__(self, log: EventLog, snapshot_at: int) -> None:
        self.seen: dict[str, list[Record]] = {kind: [] for kind in KINDS}
        self.ended: set[str] = set()
        self.known: dict[str, str] = {}
        self.acquired: list[tuple[str, int, str]] = []
        self.state: Folded = {}
        self.snapshot: tuple[Folded, dict[str, dict[int, int]]] = {}, {}
        self.questions: dict[str, tuple[str, str]] = {}
        self.unknown: dict[str, tuple[str, str]] = {}
        self._log = log
        self._left = snapshot_at
        self._cursor: dict[str, dict[int, int]] = {kind: {} for kind in KINDS}
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Start to read."""
        self._tasks = [asyncio.create_task(self._read(kind)) for kind in KINDS]

    async def close(self) -> None:
        """Stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, true: Callable[[], bool], patience_s: float) -> None:
        """Return when something has become true by what was read.

        Raises:
            TimeoutError: it has not.
        """
        async with asyncio.timeout(patience_s):
            while not true():
                failed = next((task for task in self._tasks if task.done()), None)
                if failed is not None:
                    failed.result()
                self._news.clear()
                await self._news.wait()

    async def news(self) -> None:
        """Return when something was read."""
        self._news.clear()
        await self._news.wait()

    async def _read(self, kind: str) -> None:
        cursor = self._cursor[kind]
        while True:
            with suppress(*AWAY):
                async for batch in self._log.read_batches(self._log.topology.journal(kind), dict(cursor)):
                    for record in batch:
                        self._take(kind, record)
                        cursor[record.partition] = record.offset + 1
                    self._news.set()
            await asyncio.sleep(0.2)

    def _take(self, kind: str, record: Record) -> None:
        self.seen[kind].append(record)
        invariants.fold(self.state, record)
        event, run_id, payload = record.envelope, record.key, record.envelope.payload
        if event.event_type == "run.started":
            self.known[run_id] = kind
        elif event.event_type in invariants.TERMINAL:
            self.ended.add(run_id)
        elif event.event_type == "partition.acquired":
            self.acquired.append((kind, record.partition, payload["instance_id"]))
        elif event.event_type == "capability.invoked" and event.partition_key != run_id:
            self.known.setdefault(payload["run_id"], payload["target_agent_type"])
        elif event.event_type == "approval.requested":
            self.questions[payload["approval_id"]] = kind, run_id
        elif event.event_type in ("approval.answered", "approval.expired"):
            self.questions.pop(payload["approval_id"], None)
        elif event.event_type == "effect.outcome.unknown" or payload.get("awaits_decision"):
            self.unknown[payload["effect_id"]] = kind, run_id
        elif event.event_type in ("effect.resolved", "effect.completed"):
            self.unknown.pop(payload["effect_id"], None)
        self._left -= 1
        if self._left == 0:
            cursor = {name: dict(offsets) for name, offsets in self._cursor.items()}
            cursor[kind][record.partition] = record.offset + 1
            self.snapshot = dict(self.state), cursor


class People:
    """Answer every question, and decide about effects of which nobody knows: by what the ledger says.

    Args:
        log: of the runs.
        reader: what they see.
        ledger: its file.
        alive: names of the processes that live.
        chance: what is decided where either would do.
        gives_up: that a call has failed is what may be decided.
    """

    def __init__(
        self,
        log: EventLog,
        reader: Reader,
        ledger: Path,
        alive: Callable[[], set[str]],
        chance: Random,
        *,
        gives_up: bool = True,
    ) -> None:
        self._client = Client(log, agent_id="anna")
        self._reader = reader
        self._ledger = ledger
        self._alive = alive
        self._chance = chance
        self._decisions = ("retry", "fail") if gives_up else ("retry",)

    async def help(self) -> None:
        """Until cancelled."""
        while True:
            for approval_id, (kind, run_id) in list(self._reader.questions.items()):
                if run_id not in self._reader.ended:
                    await patiently(partial(self._client.run_handle(kind, run_id).approve, approval_id))
            for effect_id, (kind, run_id) in list(self._reader.unknown.items()):
                if run_id not in self._reader.ended:
                    await self._decide(kind, run_id, effect_id)
            # What is on its way is seen soon; a call may end without a word on the log.
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    await self._reader.news()

    async def _decide(self, kind: str, run_id: str, effect_id: str) -> None:
        run = self._client.run_handle(kind, run_id)
        calls = [call for call in read_ledger(self._ledger) if call.key == effect_id]
        done = next((call for call in calls if call.outcome == "done"), None)
        if done is not None:
            await patiently(partial(run.resolve_effect, effect_id, "result", done.result))
        elif not any(_runs(call, self._alive()) for call in calls):
            await patiently(partial(run.resolve_effect, effect_id, self._chance.choice(self._decisions)))


def _runs(call: Call, alive: set[str]) -> bool:
    return call.ended_s is None and call.process in alive


async def patiently(send: Callable[[], Any]) -> None:
    """Send until the log has it; what is closed by then needs nothing."""
    while True:
        try:
            await send()
        except AWAY:
            await asyncio.sleep(0.2)
        except CLOSED:
            return
        else:
            return
