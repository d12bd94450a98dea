"""Who watches runs from outside: what people see of them, and a fold of all journals to compare with.

People answer every question, and decide about effects of which nobody knows: by what was done outside.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from random import Random
from typing import Any, Final, Literal, NamedTuple

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
from noesium_stream.log.record import Record
from tests.support import invariants
from tests.support.invariants import Book, Folded

AWAY: Final = (LogUnavailableError, LogFullError, CommitUnknownError)
CLOSED: Final = (ApprovalClosedError, ApprovalError, EffectDecisionError, RunEndedError, RunNotFoundError)


class Open(NamedTuple):
    """A question, or an effect whose outcome waits for somebody, by its id."""

    kind: str
    run_id: str
    id: str


class Watch:
    """What is known of the runs whose journals somebody reads; give `take` their records.

    Args:
        snapshot_at: after so many records the fold is kept as it is then.

    Attributes:
        seen: the records by journal (`invariants.Book.journals`).
        ended: runs that have an outcome.
        last: by run, the type of its last event.
    """

    def __init__(self, snapshot_at: int) -> None:
        self.seen: dict[str, list[Record]] = defaultdict(list)
        self.ended: set[str] = set()
        self.last: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._questions: dict[str, Open] = {}
        self._unknown: dict[str, Open] = {}
        self._times: dict[str, int] = {}
        self._state: Folded = {}
        self._cursor: dict[str, dict[int, int]] = defaultdict(dict)
        self._snapshot: tuple[Folded, dict[str, dict[int, int]]] | None = None
        self._snapshot_at = snapshot_at

    def take(self, kind: str, record: Record, journal: str | None = None) -> None:
        """The next record of an agent type's journal; `journal`: which, if it is not its first one."""
        name = journal or kind
        self.seen[name].append(record)
        invariants.fold(self._state, record)
        self._cursor[name][record.partition] = record.offset + 1
        self._snapshot_at -= 1
        if self._snapshot_at == 0:
            self._snapshot = dict(self._state), {name: dict(at) for name, at in self._cursor.items()}
        event, run_id, payload = record.envelope, record.key, record.envelope.payload
        self.last[run_id] = event.event_type
        if event.event_type == "run.started":
            self._known[run_id] = kind
        elif event.event_type in invariants.TERMINAL:
            self.ended.add(run_id)
        elif event.event_type == "capability.invoked" and event.partition_key != run_id:
            self._known.setdefault(payload["run_id"], payload["target_agent_type"])
        elif event.event_type == "approval.requested":
            approval_id = payload["approval_id"]
            self._questions[approval_id] = Open(kind, run_id, approval_id)
        elif event.event_type in ("approval.answered", "approval.expired"):
            self._questions.pop(payload["approval_id"], None)
        elif event.event_type == "effect.outcome.unknown" or payload.get("awaits_decision"):
            effect_id = payload["effect_id"]
            self._unknown[effect_id] = Open(kind, run_id, effect_id)
            self._times[effect_id] = self._times.get(effect_id, 0) + 1
        elif event.event_type in ("effect.resolved", "effect.completed"):
            self._unknown.pop(payload["effect_id"], None)

    def position(self, journal: str) -> dict[int, int]:
        """The next offset of each partition of a journal of which something was read."""
        return dict(self._cursor[journal])

    def questions(self) -> list[Open]:
        """Those that are open."""
        return [found for found in self._questions.values() if found.run_id not in self.ended]

    def unknown(self) -> list[Open]:
        """Effects that wait for a person."""
        return [found for found in self._unknown.values() if found.run_id not in self.ended]

    def times_unknown(self, effect_id: str) -> int:
        """How often the outcome of this effect was unknown."""
        return self._times.get(effect_id, 0)

    def open_runs(self, asked: Collection[str] = ()) -> set[str]:
        """Runs that were asked for, or are known of, and have not ended."""
        return (self._known.keys() | set(asked)) - self.ended

    def faults(self, book: Book) -> Iterator[str]:
        """Where this reader, one from a snapshot and one from the beginning differ."""
        whole: Folded = {}
        tail, cursor = self._snapshot or ({}, {})
        tail = dict(tail)
        for name, records in book.journals.items():
            yield from invariants.seen_otherwise(self.seen[name], records)
            for record in records:
                invariants.fold(whole, record)
                if record.offset >= cursor.get(name, {}).get(record.partition, 0):
                    invariants.fold(tail, record)
        if whole != self._state:
            yield "diverged: the state that was folded live is another than that from the beginning"
        if whole != tail:
            yield "diverged: the state from a snapshot on is another than that from the beginning"


def decision(status: str, chance: Random) -> Literal["result", "retry", "fail"] | None:
    """What a person says of an effect whose calls are, outside, `running`, `done`, `refused` or `none`; None:
    it is too early to say.
    """
    if status == "running":
        return None
    if status == "done":
        return "result"
    return "retry" if chance.random() < 0.5 else "fail"


async def patiently(send: Callable[[], Awaitable[Any]], pause_s: float) -> Any:
    """Send until the log has it."""
    while True:
        try:
            return await send()
        except AWAY:
            await asyncio.sleep(pause_s)


async def unless_closed(send: Callable[[], Awaitable[Any]], pause_s: float) -> None:
    """Send until the log has it; what is closed by then needs nothing."""
    try:
        await patiently(send, pause_s)
    except CLOSED:
        return
