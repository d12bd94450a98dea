"""What the overlap policies promise, at each instant: by the log's append times, which one clock gives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from noesium_stream.agent.schedules.state import MOST_OPEN
from noesium_stream.event.standard import Overlap
from noesium_stream.log.record import Record
from tests.sim.schedules.lives import Life
from tests.support.invariants import TERMINAL, Book

ALONE = (Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER)
"""The policies of ticks whose runs begin when no other one is open."""


class Runs:
    """The runs on a log.

    Attributes:
        commands, cancels: the records in inboxes that ask for them and for their ends, by run id.
        ends_ms: when their outcomes were appended.
    """

    def __init__(self, book: Book) -> None:
        self.commands = defaultdict[str, list[Record]](list)
        self.cancels = defaultdict[str, list[Record]](list)
        self.ends_ms: dict[str, int] = {}
        for record in (record for inbox in book.inboxes.values() for record in inbox):
            if record.event_type == "run.requested":
                self.commands[record.key].append(record)
            elif record.event_type == "run.cancel.requested":
                self.cancels[record.key].append(record)
        for record in (record for journal in book.journals.values() for record in journal):
            if record.event_type in TERMINAL and record.envelope.payload.get("run_id") == record.key:
                self.ends_ms.setdefault(record.key, record.timestamp_ms)

    def open_at(self, run_id: str, at_ms: int) -> bool:
        """Whether it has no outcome at a moment."""
        return at_ms < self.ends_ms.get(run_id, at_ms + 1)

    def asked_to_end(self, run_id: str, cause_id: str | None) -> bool:
        """Whether it was asked to end, by a decision about an event, if one is given."""
        return any(cause_id in (None, one.envelope.causation_id) for one in self.cancels.get(run_id, ()))


def broken_overlap(
    life: Life, inputs: Sequence[Record], facts: Sequence[Record], runs: Runs
) -> Iterator[str]:
    """Where runs of a schedule are open side by side and were not to be, or were ended and were not to be."""
    offsets = {record.envelope.event_id: record.offset for record in inputs}
    ended = {
        record.envelope.payload["run_id"]: record.offset
        for record in reversed(inputs)
        if record.event_type == "schedule.run.ended"
    }
    judge = _Judge(life, runs, offsets, ended)
    for fact in facts:
        if fact.envelope.payload.get("schedule_id") == life.schedule_id:
            yield from judge.take(fact)
    for run_id in judge.started:
        for cancel in runs.cancels.get(run_id, ()):
            if cancel.envelope.causation_id not in judge.cancelling:
                yield f"overlap: run {run_id} of {life.name} was cancelled, and no tick has asked for it"


class _Judge:
    """The open runs of a schedule, decision by decision.

    Attributes:
        started: its runs.
        cancelling: the events whose decisions may cancel runs.
    """

    def __init__(self, life: Life, runs: Runs, offsets: dict[str, int], ended: dict[str, int]) -> None:
        self.started: list[str] = []
        self.cancelling = {
            cause_id
            for (cause_id, _), policy in life.policies.items()
            if policy in (Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER)
        }
        self._life = life
        self._runs = runs
        self._offsets = offsets
        self._ended = ended
        self._let_go: set[str] = set()
        self._waiting: list[int] = []
        self._policies = {tick_ms: policy for (_, tick_ms), policy in life.policies.items()}

    def take(self, fact: Record) -> Iterator[str]:
        """Judge a decision by those before it."""
        payload, cause_id = fact.envelope.payload, fact.envelope.causation_id or ""
        tick_ms = payload.get("tick_ms", payload.get("from_ms"))
        policy = self._life.policies.get((cause_id, tick_ms), self._policies.get(tick_ms))
        if policy is None:
            if payload.get("reason") != "late":
                yield f"decision: {fact.event_type} of {self._life.name} is about {tick_ms}, which is no tick"
            return
        where = f"{self._life.name} ({policy}): the tick {tick_ms} at {fact.offset}"
        if fact.event_type == "schedule.tick.started":
            yield from self._start(where, fact, policy, tick_ms, cause_id)
        elif fact.event_type == "schedule.tick.buffered":
            yield from self._buffer(where, fact, policy, tick_ms, cause_id)
        elif payload["reason"] == "replaced":
            self._waiting.remove(tick_ms)
        elif payload["reason"] == "overlap":
            if policy not in (Overlap.SKIP, Overlap.BUFFER_ONE) or not self._believed_open(cause_id):
                yield f"overlap: {where} was skipped for the sake of no run"
            if policy is Overlap.BUFFER_ONE and not self._waiting:
                yield f"overlap: {where} was skipped while none waits"

    def _start(self, where: str, fact: Record, policy: Overlap, tick_ms: int, cause_id: str) -> Iterator[str]:
        was_waiting = (cause_id, tick_ms) not in self._life.policies
        if was_waiting:
            if not self._waiting or self._waiting[0] != tick_ms:
                yield f"overlap: {where} starts before those that wait: {self._waiting}"
            self._waiting = [one for one in self._waiting if one != tick_ms]
        open_now = self._open_at(fact.timestamp_ms)
        if (policy in ALONE or was_waiting) and open_now:
            yield f"overlap: {where} starts beside {open_now}"
        if policy is Overlap.TERMINATE_OTHER and not was_waiting:
            yield from self._not_cancelled(where, open_now, cause_id)
            self._let_go.update(self.started)
        self.started.append(fact.envelope.payload["run_id"])
        if len(self._open_at(fact.timestamp_ms)) > MOST_OPEN:
            yield f"overlap: {where} is one too many"

    def _buffer(
        self, where: str, fact: Record, policy: Overlap, tick_ms: int, cause_id: str
    ) -> Iterator[str]:
        self._waiting.append(tick_ms)
        if policy not in (Overlap.BUFFER_ONE, Overlap.BUFFER_ALL, Overlap.CANCEL_OTHER):
            yield f"overlap: {where} was buffered"
        if fact.envelope.payload["waiting"] != len(self._waiting):
            yield f"overlap: {where} says {fact.envelope.payload['waiting']}: {self._waiting} wait"
        if policy is not Overlap.BUFFER_ALL and len(self._waiting) != 1:
            yield f"overlap: {where} waits with others: {self._waiting}"
        if not self._believed_open(cause_id):
            yield f"overlap: {where} was buffered for the sake of no run"
        if policy is Overlap.CANCEL_OTHER:
            yield from self._not_cancelled(where, self._open_at(fact.timestamp_ms), None)

    def _not_cancelled(self, where: str, run_ids: Sequence[str], cause_id: str | None) -> Iterator[str]:
        for run_id in run_ids:
            if not self._runs.asked_to_end(run_id, cause_id):
                yield f"overlap: {where} was to cancel {run_id}"

    def _open_at(self, at_ms: int) -> list[str]:
        return [one for one in self.started if one not in self._let_go and self._runs.open_at(one, at_ms)]

    def _believed_open(self, cause_id: str) -> list[str]:
        """The runs whose ends were not on the topic before an event."""
        offset = self._offsets[cause_id]
        return [
            one
            for one in self.started
            if one not in self._let_go and self._ended.get(one, offset + 1) > offset
        ]
