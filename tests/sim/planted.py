"""Bugs that are planted to see whether the simulation catches them: each is switched on here alone.

Each is a mistake that one could make in the worker; the words beside it are what the faults of a seed begin
with that catches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest

from noesium_stream.errors import CommitUnknownError, LogUnavailableError, NoesiumError
from noesium_stream.event.rules.agent_calls import ANSWERS, COMMANDS
from noesium_stream.kernel.step.effect import Effect
from noesium_stream.log.embedded.group import Member
from noesium_stream.log.embedded.log import EmbeddedLog
from noesium_stream.log.port import LogWriter
from noesium_stream.worker.commit.committer import Committer
from noesium_stream.worker.host import Host
from noesium_stream.worker.inbox import batch, decide
from noesium_stream.worker.inbox.decide import DELIVER, SKIP, START, Action, Decision
from noesium_stream.worker.runs.open_runs import OpenRuns
from noesium_stream.worker.runs.timers import Timers
from noesium_stream.worker.state import restore, state_keeper
from noesium_stream.worker.state.known_runs import KnownRuns
from tests.sim.log import SimWriter
from tests.sim.play import MakeStage, Outcome, play

Patch = Callable[[pytest.MonkeyPatch], None]


class Plant(NamedTuple):
    """A bug, what the faults of a seed that catches it begin with, the seeds that are tried, their world."""

    switch_on: Patch
    words: tuple[str, ...]
    seeds: range
    make_stage: MakeStage | None = None


PLANTS: Final[dict[str, Plant]] = {}


def catch(plant: Plant) -> Outcome | None:
    """The first seed that catches a planted bug; None: none does."""
    for seed in plant.seeds:
        with pytest.MonkeyPatch.context() as patch:
            plant.switch_on(patch)
            outcome = play(seed, make_stage=plant.make_stage)
        if any(fault.startswith(plant.words) for fault in outcome.faults):
            return outcome
    return None


def planted(
    *words: str, first: int = 0, seeds: int = 200, make_stage: MakeStage | None = None
) -> Callable[[Patch], Patch]:
    """Keep a bug under its function's name; before `first` no seed has caught it."""

    def keep(switch_on: Patch) -> Patch:
        PLANTS[switch_on.__name__] = Plant(switch_on, words, range(first, first + seeds), make_stage)
        return switch_on

    return keep


# -- reading the journal back ------------------------------------------------------------------------------


@planted("repeated")
def fold_short_of_the_end(patch: pytest.MonkeyPatch) -> None:
    """The journal is read to a little before its high watermark."""
    _fold_to(patch, lambda owner, end: max(0, end - 4))


@planted("repeated", first=85)
def fold_to_the_end_before_the_fence(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is asked for a while before the writer is opened: what the last owner commits in
    between is not read.
    """
    ends: dict[str, int] = {}
    opened = EmbeddedLog.writer

    async def writer(self: EmbeddedLog, writer_id: str, **options: Any) -> LogWriter:
        journal, number = writer_id.rsplit("/", 1)
        with suppress(NoesiumError):
            ends[writer_id] = (await self.end(journal))[int(number)]
        await asyncio.sleep(15.0)
        return await opened(self, writer_id, **options)

    patch.setattr(EmbeddedLog, "writer", writer)
    _fold_to(patch, lambda place, end: min(end, ends.get(place, end)))


def _fold_to(patch: pytest.MonkeyPatch, end_of: Callable[[str, int], int]) -> None:
    true_restore = state_keeper.restore

    async def short(log: Any, home: Any, agent_type: str, number: int, *rest: Any, **options: Any) -> Any:
        journal = log.topology.journal(agent_type)
        return await true_restore(
            _Short(log, journal, number, end_of), home, agent_type, number, *rest, **options
        )

    patch.setattr(state_keeper, "restore", short)


class _Short:
    def __init__(self, log: Any, journal: str, number: int, end_of: Callable[[str, int], int]) -> None:
        self._log, self._journal, self._number, self._end_of = log, journal, number, end_of

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def end(self, topic: str) -> dict[int, int]:
        ends: dict[int, int] = await self._log.end(topic)
        if topic == self._journal:
            ends[self._number] = self._end_of(f"{topic}/{self._number}", ends[self._number])
        return ends


@planted("gap")
def number_with_gaps_and_read_over_them(patch: pytest.MonkeyPatch) -> None:
    """What was sent to the log and not acknowledged keeps its numbers, and no reader minds."""

    def add(records: list[Any], record: Any) -> bool:
        records.append(record)
        return True

    true_ordered = Committer._ordered

    def ordered(self: Committer, requests: Any, numbers: dict[str, int]) -> Any:
        found = true_ordered(self, requests, numbers)
        self.sequences.update(numbers)
        return found

    true_take = KnownRuns.take

    def take(self: KnownRuns, entry: Any, number: int) -> None:
        run = self.open.get(entry.key)
        if run is not None:
            run.count = max(run.count, number)
        true_take(self, entry, number)

    patch.setattr(restore, "_add", add)
    patch.setattr(KnownRuns, "take", take)
    patch.setattr(Committer, "_ordered", ordered)


@planted("doubled", "repeated")
def forget_which_runs_have_ended(patch: pytest.MonkeyPatch) -> None:
    """Who takes a partition over knows nothing of the runs that have ended."""
    patch.setattr(KnownRuns, "has_ended", lambda self, run_id: False)


# -- writing it --------------------------------------------------------------------------------------------


@planted("fenced", "repeated", first=10)
def skip_the_fence(patch: pytest.MonkeyPatch) -> None:
    """Each process has a writer id of its own: nobody fences anybody."""
    opened = EmbeddedLog.writer

    async def writer(self: EmbeddedLog, writer_id: str, **options: Any) -> LogWriter:
        return await opened(self, f"{writer_id}/{id(self)}", **options)

    patch.setattr(EmbeddedLog, "writer", writer)


@planted("epoch", "fenced", "repeated", "torn", "lost")
def keep_the_writer_after_an_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    """The partition is read anew after a commit of unknown outcome, and the writer is the old one."""
    opened = EmbeddedLog.writer

    async def writer(self: EmbeddedLog, writer_id: str, **options: Any) -> LogWriter:
        kept = self.__dict__.setdefault("_kept", {})
        known = kept.get(writer_id)
        if known is None or not known.unknown:
            kept[writer_id] = known = await opened(self, writer_id, **options)
        known.unknown = known._closed = False
        return known

    true_commit = SimWriter.commit

    async def commit(self: Any, outgoing: Any) -> Any:
        self.unknown = False
        try:
            return await true_commit(self, outgoing)
        except CommitUnknownError:
            self.unknown = True
            raise

    patch.setattr(SimWriter, "unknown", False, raising=False)
    patch.setattr(SimWriter, "commit", commit)
    patch.setattr(EmbeddedLog, "writer", writer)


@planted("repeated", "doubled")
def publish_again_after_an_unknown_outcome(patch: pytest.MonkeyPatch) -> None:
    """A commit that nobody acknowledged is taken for one that was not made."""
    true_commit = SimWriter.commit

    async def commit(self: Any, outgoing: Any) -> Any:
        try:
            return await true_commit(self, outgoing)
        except CommitUnknownError as error:
            raise LogUnavailableError("not acknowledged: not made") from error

    patch.setattr(SimWriter, "commit", commit)


# -- the inbox ---------------------------------------------------------------------------------------------


@planted("lost", first=50)
def commit_inbox_offsets_early(patch: pytest.MonkeyPatch) -> None:
    """The group's offset says how far the inbox was accepted, and is committed before the copies are."""
    true_deliver, true_assigned = Member._deliver, Host._assigned

    async def deliver(self: Any) -> bool:
        handler = self._handler

        async def early(batch: Any) -> None:
            last = {(r.topic, r.partition): r.offset + 1 for r in batch}
            offsets = {tp: (last[tp], claim.epoch) for tp, claim in self._claims.items() if tp in last}
            await self._coordinator.commit(offsets)
            await handler(batch)

        self._handler = early
        try:
            return await true_deliver(self)
        finally:
            self._handler = handler

    async def assigned(self: Any, partitions: Any) -> Mapping[Any, int]:
        await true_assigned(self, partitions)
        return {}

    patch.setattr(Member, "_deliver", deliver)
    patch.setattr(Host, "_assigned", assigned)


@planted("doubled", "repeated")
def do_not_deduplicate_commands(patch: pytest.MonkeyPatch) -> None:
    """A command that comes twice is begun twice."""
    judge_otherwise(patch, COMMANDS, SKIP, START)


@planted("lost", "passed over")
def pass_over_answers(patch: pytest.MonkeyPatch) -> None:
    """What other agents answer is passed over where it comes first in a batch with something else."""
    judge_otherwise(patch, ANSWERS, DELIVER, SKIP)


@planted("answer", "doubled", "repeated")
def take_every_answer(patch: pytest.MonkeyPatch) -> None:
    """A question that was answered is answered once more."""
    judge_otherwise(patch, ("approval.answered",), SKIP, DELIVER, only_open=True)


def judge_otherwise(
    patch: pytest.MonkeyPatch, types: Any, decision: Decision, instead: Decision, *, only_open: bool = False
) -> None:
    true_judge = decide._judge

    def judge(state: Any, record: Any) -> Decision:
        found = true_judge(state, record)
        is_open = not only_open or state.history(record.key) is not None
        meant = found.action is decision.action and record.event_type in types and is_open
        return instead if meant else found

    patch.setattr(decide, "_judge", judge)


# -- runs --------------------------------------------------------------------------------------------------


@planted("lost", first=110)
def drop_a_pending_timer(patch: pytest.MonkeyPatch) -> None:
    """A run's timers are set while it begins, and not when it is taken over."""
    true_waits = OpenRuns.waits

    def waits(self: OpenRuns, session: Any, due_ms: int | None) -> None:
        known = due_ms is not None and any(
            event.payload["due_ms"] == due_ms and event.event_id in session.restored
            for event in session.history.timers.values()
        )
        true_waits(self, session, None if known else due_ms)

    true_restored = OpenRuns._restored

    def restored(self: Any, records: Any) -> Any:
        session: Any = true_restored(self, records)
        session.restored = {event.event_id for event in session.history.timers.values()}
        return session

    patch.setattr("noesium_stream.worker.runs.run_session.RunSession.restored", frozenset(), raising=False)
    patch.setattr(OpenRuns, "waits", waits)
    patch.setattr(OpenRuns, "_restored", restored)
    true_resume = OpenRuns.resume

    def resume(self: Any, *given: Any) -> None:
        timers, self._timers = self._timers, Timers(self.clock, lambda run_id: None)
        true_resume(self, *given)
        self._timers = timers

    patch.setattr(OpenRuns, "resume", resume)


@planted("lost")
def forget_one_deadline_of_three(patch: pytest.MonkeyPatch) -> None:
    """Of deadlines that pass, some wake nobody."""
    count = 0
    true_set = Timers.set

    def set_(self: Timers, run_id: str, due_ms: int) -> None:
        nonlocal count
        count += 1
        if count % 3:
            true_set(self, run_id, due_ms)

    patch.setattr(Timers, "set", set_)


@planted("effect", first=15)
def call_again_after_a_takeover(patch: pytest.MonkeyPatch) -> None:
    """An external effect whose outcome is not known is called again by the next owner."""

    async def make(self: Effect, effect_id: str, call: Any, tries: int, refused: Any = None) -> None:
        known = effect_id in self.site.history.requested
        await self._perform(effect_id, call, tries, intend=not known)

    patch.setattr(Effect, "_make", make)


@planted("effect", first=75)
def call_before_the_intent_is_on_the_log(patch: pytest.MonkeyPatch) -> None:
    """An effect is called while its intent is on the way."""
    true_intend = Effect._intend

    async def intend(self: Effect, effect_id: str) -> None:
        journal = self.site.journal
        true_commit = journal.commit

        async def commit() -> None:
            journal.flush()

        journal.commit = commit  # type: ignore[method-assign]
        try:
            await true_intend(self, effect_id)
        finally:
            journal.commit = true_commit  # type: ignore[method-assign]

    patch.setattr(Effect, "_intend", intend)


# -- growth ------------------------------------------------------------------------------------------------


@planted("lost", "passed over", first=20)
def pass_over_what_is_for_the_next_generation(patch: pytest.MonkeyPatch) -> None:
    """Commands are handed on, and what is sent to runs of the next generation is not."""
    true_forwarded = decide.is_forwarded

    def commands_alone(state: Any, run_id: str, action: Action) -> bool:
        return action is Action.START and true_forwarded(state, run_id, action)

    patch.setattr(decide, "is_forwarded", commands_alone)
    patch.setattr(batch, "is_forwarded", commands_alone)


@planted("doubled", first=50)
def hand_on_what_is_known(patch: pytest.MonkeyPatch) -> None:
    """A command that comes again after a growth is handed on, though its run is here."""

    def all_but_deliveries(state: Any, run_id: str, action: Action) -> bool:
        return bool(state.grown) and action is not Action.DELIVER

    patch.setattr(decide, "is_forwarded", all_but_deliveries)
    patch.setattr(batch, "is_forwarded", all_but_deliveries)


@planted("repeated", "doubled", first=45)
def forget_what_was_handed_on(patch: pytest.MonkeyPatch) -> None:
    """What the journal says of requests that were handed on does not name their places in the inbox."""
    forwarded = batch.forwarded

    def nameless(*given: Any) -> list[Any]:
        request, said = forwarded(*given)
        return [request, said._replace(headers=())]

    patch.setattr(batch, "forwarded", nameless)
