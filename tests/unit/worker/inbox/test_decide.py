"""The decider and its fold, without an event loop, a log or a clock: all interleavings of short histories.

A partition is played by hand: its inbox is read in batches of one or two, queued commands start when their
turn comes, runs end, and at any moment the process dies and another one begins with the journal alone,
perhaps one that carries another version. Whatever the order, each command starts one run, each signal that
comes before its run's end is delivered once, in order, and nothing follows the end of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import EventValidationError
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext, standard_catalogue
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import (
    GraphRef,
    RunCancelRequested,
    RunCompleted,
    RunRequested,
    RunSignalled,
    RunStarted,
)
from noesium_stream.kernel import RunHistory
from noesium_stream.log import open_log
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.record import Record
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.inbox.decide import Action, Decision, decide, judge
from noesium_stream.worker.inbox.deferred_requests import DeferredRequests
from noesium_stream.worker.inbox.journal_records import dead_letter, deferred, resumed, source_of
from noesium_stream.worker.state.command_queue import CommandQueue
from noesium_stream.worker.state.journal_entry import Entry, entry_of_sent
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.state_file import Identity, StateFile

ME = AgentRef("client", "client", "local", "one")
CODEC = EnvelopeCodec(standard_catalogue())
CLOCK = VirtualClock()
INBOX = "inbox"
A, B = CLOCK.uuid7(), CLOCK.uuid7()
GRAPH = GraphRef(graph_id="sample", version="1.0.0", fingerprint="0" * 64)


def sent(event: DomainEvent, run_id: str) -> EventEnvelope:
    trace = TraceContext("1" * 32, "2" * 16)
    return event.to_envelope(ME, trace, partition_key=run_id, metadata={"to": "sample"}, clock=CLOCK)


def asks(run_id: str, version: str | None = None) -> EventEnvelope:
    return sent(RunRequested(run_id=run_id, agent_type="sample", agent_version=version, input={}), run_id)


def signals(run_id: str, word: str) -> EventEnvelope:
    return sent(RunSignalled(run_id=run_id, name="word", value=word), run_id)


def cancels(run_id: str) -> EventEnvelope:
    return sent(RunCancelRequested(run_id=run_id), run_id)


ONE_COMMAND = asks(A)
HISTORIES: dict[str, list[EventEnvelope]] = {
    "a command that comes twice": [ONE_COMMAND, signals(A, "1"), ONE_COMMAND, signals(A, "2")],
    "two runs": [asks(A), asks(B), signals(A, "1"), signals(B, "1")],
    "a version that is not there": [asks(A, "^2"), signals(A, "1"), asks(B), signals(A, "2")],
    "a cancelled run": [asks(A), signals(A, "1"), cancels(A), signals(A, "2")],
    "a run that nobody waits for": [asks(A, "^2"), signals(A, "1"), cancels(A)],
    "something that is wrong": [signals(A, "0"), asks(A).replace(partition_key=B), asks(A), signals(A, "1")],
}


@pytest.fixture
async def log() -> Any:
    log = await open_log("memory://")
    yield log
    await log.close()


@dataclass
class Journal:
    """What the partition's owners have committed, in order."""

    entries: list[Entry] = field(default_factory=list)
    events: list[EventEnvelope] = field(default_factory=list)

    def of(self, run_id: str) -> list[EventEnvelope]:
        numbered = zip(self.entries, self.events, strict=True)
        return [event for entry, event in numbered if entry.key == run_id and SEQUENCE in entry.headers]


class Process:
    """One owner of the partition; what it knows is the journal's, and the queue that it has read since."""

    def __init__(self, context: PartitionContext, journal: Journal, version: int) -> None:
        self.agent_type = "sample"
        self.policy = context.policy
        self.grown = False
        self._context = context
        self._journal = journal
        self._version = version
        self._state = state = PartitionState(
            StateFile.in_memory(Identity("journal", "id", 0)), INBOX, Bounds()
        )
        state.manifest.in_order = False
        self._histories: dict[str, RunHistory] = {}
        for entry, event in zip(journal.entries, journal.events, strict=True):
            self._evolve(entry, event)
        self._deferred = DeferredRequests(context, state)
        self._queue = CommandQueue(state, INBOX, 0, CODEC)
        self._queued: set[str] = set()
        self._deferred_now: set[str] = set()
        self._at_turn = False
        self.position = state.manifest.low
        state.read_to(self.position)

    # -- AdmissionState

    def history(self, run_id: str) -> RunHistory | None:
        found = self._histories.get(run_id)
        return None if found is None or found.terminal is not None else found

    def is_known(self, run_id: str) -> bool:
        return run_id in self._histories or run_id in self._state or self.command_waits(run_id)

    def has_ended(self, run_id: str) -> bool:
        return self._state.has_ended(run_id)

    def command_waits(self, run_id: str) -> bool:
        return not self._at_turn and (run_id in self._queued or run_id in self._queue)

    def is_deferred(self, run_id: str) -> bool:
        return run_id in self._deferred_now or run_id in self._deferred

    def deferred_now(self, run_id: str) -> bool:
        return run_id in self._deferred_now

    def may_have_deferred_command(self, run_id: str) -> bool:
        return self._deferred.may_have_command(run_id)

    def missing_version(self, command: EventEnvelope) -> str | None:
        wanted = command.payload.get("agent_version")
        return None if wanted in (None, f"^{self._version}") else "another version"

    # -- the loop, by hand

    def read(self, records: Sequence[Record]) -> None:
        """Decide on a batch of the inbox, and commit."""
        outgoing: list[Outgoing] = []
        queued: list[tuple[Record, str | None]] = []
        for record in records:
            if not self._state.is_decided(record.offset):
                self._carry_out(record, decide(self, record), outgoing, queued)
        self._commit(outgoing)
        for record, fair in queued:
            self._queue.put(record, fair)
        self.position = records[-1].offset + 1
        self._state.read_to(self.position, records[-1])
        self._queued.clear()

    def comes_late(self, record: Record) -> bool:
        """Whether nobody has decided on it before, and its run has ended."""
        return not self._state.is_decided(record.offset) and self.has_ended(record.key)

    def start(self) -> None:
        """Take up the command whose turn it is, with what waits behind it."""
        self._at_turn = True
        turns, fair = self._queue.next_ones(1)
        outgoing: list[Outgoing] = []
        for turn in turns:
            for record in (turn.record, *self._queue.behind(turn.record.key, 9)):
                decision = decide(self, record)
                self._carry_out(record, decision, outgoing, [], at_turn=True)
                if decision.action is Action.SKIP:
                    self._queue.drop(record.offset)
        self._commit(outgoing, fair)
        self._at_turn = False

    def retry(self) -> None:
        """Take up what earlier owners could not take."""
        self._at_turn = True
        for run_id in self._deferred.runs():
            outgoing: list[Outgoing] = []
            offsets: list[int] = []
            for request in self._deferred.of(run_id):
                found = judge(self, request.record)
                if found.action is Action.DEFER:
                    break
                self._carry_out(request.record, found, outgoing, [], at_turn=True)
                offsets += request.offsets
            if offsets:
                self._commit([resumed(self._context, run_id, offsets, None), *outgoing])
        self._at_turn = False

    def end_one(self) -> None:
        """The oldest open run ends."""
        run_id = next(run_id for run_id, history in self._histories.items() if history.terminal is None)
        self._commit([self._of_run(sent(RunCompleted(run_id=run_id, result={}, duration_ms=1), run_id))])

    @property
    def open_runs(self) -> int:
        return sum(history.terminal is None for history in self._histories.values())

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def _carry_out(
        self,
        record: Record,
        decision: Decision,
        outgoing: list[Outgoing],
        queued: list[tuple[Record, str | None]],
        *,
        at_turn: bool = False,
    ) -> None:
        action = decision.action
        if action is Action.START and not at_turn:
            queued.append((record, "key:k"))
            self._queued.add(record.key)
        elif action is Action.START:
            started = RunStarted(run_id=record.key, agent_type="sample", agent_version="1.0.0", graph=GRAPH)
            outgoing.append(self._of_run(record.envelope, source_of(record)))
            outgoing.append(self._of_run(sent(started, record.key)))
        elif action is Action.DELIVER:
            outgoing.append(self._of_run(record.envelope, source_of(record)))
        elif action is Action.QUEUE:
            queued.append((record, None))
        elif action is Action.DEFER:
            outgoing += deferred(self._context, record, decision.reason)
            self._deferred_now.add(record.key)
        elif action is Action.WITHDRAW:
            self._withdraw(record, outgoing)
        elif action is Action.DEAD_LETTER:
            assert decision.error is not None
            outgoing += dead_letter(self._context, record, decision.error)[1:]
        else:
            assert action is Action.SKIP, action
            self._state.skip(record.offset)

    def _withdraw(self, cancel: Record, outgoing: list[Outgoing]) -> None:
        self._at_turn = True
        offsets: list[int] = []
        for request in self._deferred.of(cancel.key):
            offsets += request.offsets
            found = judge(self, request.record, any_version=True)
            self._carry_out(request.record, found, outgoing, [], at_turn=True)
        outgoing.append(resumed(self._context, cancel.key, offsets, None))
        self._carry_out(cancel, judge(self, cancel), outgoing, [], at_turn=True)
        self._at_turn = False

    def _of_run(self, event: EventEnvelope, *headers: tuple[str, bytes]) -> Outgoing:
        run_id = event.partition_key or ""
        history = self._histories.setdefault(run_id, RunHistory())
        number = history.records
        history.apply(event)
        return Outgoing(event, "journal", 0, run_id, ((SEQUENCE, str(number).encode()), *headers))

    def _commit(self, outgoing: list[Outgoing], fair: str | None = None) -> None:
        self._deferred_now.clear()
        if not outgoing:
            return
        last = outgoing[-1]
        outgoing[-1] = last._replace(headers=(*last.headers, self._state.mark(fair)))
        for record in outgoing:
            entry = entry_of_sent(record, len(self._journal.entries))
            self._journal.entries.append(entry)
            self._journal.events.append(record.envelope)
            self._state.evolve(entry)

    def _evolve(self, entry: Entry, event: EventEnvelope) -> None:
        self._state.evolve(entry)
        if SEQUENCE in entry.headers:
            self._histories.setdefault(entry.key, RunHistory()).apply(event)


class Play:
    """One order of what may happen to a history."""

    def __init__(self, log: EventLog, history: list[EventEnvelope]) -> None:
        self._context = PartitionContext(log, CLOCK, ME, 0, INBOX, "journal", 0, "partition-0")
        self.inbox = [
            Record(INBOX, 0, at, at, event.partition_key or "", [], CODEC.encode(event), CODEC)
            for at, event in enumerate(history)
        ]
        self.journal = Journal()
        self.process = Process(self._context, self.journal, 1)
        self.too_late: set[str] = set()
        self.takeovers = 0

    def possible(self) -> Iterator[str]:
        left = len(self.inbox) - self.process.position
        if left:
            yield "read"
        if left > 1:
            yield "read two"
        if self.process.waiting:
            yield "start"
        if self.process.open_runs:
            yield "end"
        if self.takeovers < 2:
            yield "take over"
        if self.takeovers < 1:
            yield "take over with version 2"

    def do(self, step: str) -> None:
        process = self.process
        if step.startswith("read"):
            records = self.inbox[process.position :][: 2 if step == "read two" else 1]
            self.too_late |= {r.envelope.event_id for r in records if process.comes_late(r)}
            process.read(records)
        elif step == "start":
            process.start()
        elif step == "end":
            process.end_one()
        else:
            self.takeovers += 1
            version = 2 if step.endswith("2") else 1
            self.process = Process(self._context, self.journal, version)
            self.process.retry()

    def finish(self) -> None:
        """Let a worker with each version come, and deal with all that is left."""
        for version in (1, 2):
            self.process = Process(self._context, self.journal, version)
            self.process.retry()
            while self.process.position < len(self.inbox):
                self.do("read")
            while self.process.waiting:
                self.process.start()


def orders(log: EventLog, history: list[EventEnvelope], most: int) -> Iterator[tuple[list[str], Play]]:
    """Each order of at most so many steps, played."""
    ready: list[list[str]] = [[]]
    while ready:
        steps = ready.pop()
        play = Play(log, history)
        for step in steps:
            play.do(step)
        if len(steps) < most:
            ready += [[*steps, step] for step in play.possible()]
        yield steps, play


def kept(run: Iterable[EventEnvelope]) -> list[str]:
    return [event.event_type for event in run]


@pytest.mark.parametrize("most", [4, pytest.param(6, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", HISTORIES)
def test_whatever_the_order_each_request_counts_once(log: EventLog, name: str, most: int) -> None:
    history, played = HISTORIES[name], count()
    for steps, play in orders(log, history, most):
        next(played)
        play.finish()
        for run_id in (A, B):
            _check(play, run_id, steps)
    assert next(played) > 100


def _check(play: Play, run_id: str, steps: list[str]) -> None:
    sound = [record.envelope for record in play.inbox if record.envelope.partition_key == run_id]
    sound = [event for event in sound if event.payload["run_id"] == run_id]
    run = play.journal.of(run_id)
    types = kept(run)
    commands = [event for event in sound if event.event_type == RunRequested.TYPE]
    if not commands:
        assert types == [], steps
        return
    assert types[:2] == [RunRequested.TYPE, RunStarted.TYPE], steps
    assert types.count(RunStarted.TYPE) == types.count(RunRequested.TYPE) == 1, steps
    ends = [at for at, event_type in enumerate(types) if event_type == RunCompleted.TYPE]
    assert ends in ([], [len(types) - 1]), steps
    after = sound[sound.index(commands[0]) + 1 :]
    wanted = [event.event_id for event in after if event.event_type == RunSignalled.TYPE]
    wanted = [event_id for event_id in wanted if event_id not in play.too_late]
    heard = [event.event_id for event in run if event.event_type == RunSignalled.TYPE]
    assert heard == wanted, steps


def test_a_decision_is_the_same_each_time(log: EventLog) -> None:
    for history in HISTORIES.values():
        play = Play(log, history)
        for record in play.inbox:
            assert decide(play.process, record) == decide(play.process, record) or isinstance(
                decide(play.process, record).error, EventValidationError
            )
            play.do("read")


def test_a_state_that_was_folded_from_the_journal_is_the_one_that_evolved(log: EventLog) -> None:
    for steps, play in orders(log, HISTORIES["two runs"], 3):
        folded = Process(play._context, play.journal, 1)
        for run_id in (A, B):
            assert folded.has_ended(run_id) == play.process.has_ended(run_id), steps
            assert (folded.history(run_id) is None) == (play.process.history(run_id) is None), steps
            assert folded.is_deferred(run_id) == play.process.is_deferred(run_id), steps
