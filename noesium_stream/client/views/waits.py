"""Reasons for which open runs wait: a fold over their journals, and the owners of their partitions.

Decision record: the list of runs folds the events of their lives alone. What an open run waits for takes all
events of its journal, so these are read for the open runs of the list only, from the first record of the
oldest of them on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from noesium_stream.client.views.approvals import MOST_SHOWN, one_line
from noesium_stream.client.views.wrong_records import WRONG, pass_over
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import LogForbiddenError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.generations import Generation, generations
from noesium_stream.log.port import EventLog, TopicPartition, process_of
from noesium_stream.log.record import Record
from noesium_stream.projection.builtin.execution import OF_RUNS, ExecutionProjection
from noesium_stream.projection.builtin.execution_state import PendingApproval, RunState

MOST_REASONS: Final = 20
"""Most reasons that are given for one run."""

_FOLD: Final = ExecutionProjection()


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason for which an open run does not go on.

    Attributes:
        kind: `approval`, `timer`, `signal`, `call` (the answer of another agent), `provider` (an agent that
            offers a capability), `effect` (a person decides about its outcome), `retry` (the next attempt of
            a node or an effect), `worker` (nobody owns the run's partition) or `slot` (the partition's owner
            has not begun the run yet).
        whom: who has to act: the people who may answer, an agent type, or the owning process; empty: a person
            for `effect`, whoever takes it for the `call` of a task, nobody for `timer`, `signal`, `retry` and
            `provider`.
        what: the question, signal, capability, effect or node; for `worker` the number of the partition.
        id: id of the question, timer, wait for a signal, effect or called run.
        node: the waiting node.
        until_ms: when it ends by itself: a deadline, or the time of a timer or attempt.
    """

    kind: str
    whom: str = ""
    what: str = ""
    id: str | None = None
    node: str | None = None
    until_ms: int | None = None

    @property
    def shown(self) -> str:
        """Return the reason for people, as it follows `waits for`."""
        at = "" if self.until_ms is None else f" {to_rfc3339(self.until_ms)}"
        if self.kind == "approval":
            return f"{self.whom} to answer {self.what}" + (f" until{at}" if at else "")
        if self.kind == "timer":
            return f"a timer of {self.what} until{at}"
        if self.kind == "signal":
            return f"the signal {self.what}"
        if self.kind == "call" and not self.whom:
            return f"a worker of {self.what} to do the task {self.id}"
        if self.kind == "call":
            return f"{self.whom} to answer {self.what}, run {self.id}"
        if self.kind == "provider":
            return f"a provider of {self.what}"
        if self.kind == "effect":
            return f"a person to decide about the effect {self.what}"
        if self.kind == "retry":
            return f"the next attempt of {self.what}" + (f" at{at}" if at else "")
        if self.kind == "worker":
            return f"a worker of {self.whom}: nobody has partition {self.what}"
        return f"its turn at {self.whom}"


class Place(NamedTuple):
    """Where a run lies: its generation, partition, and first record in the journal; None: it has none yet."""

    generation: Generation
    partition: int
    offset: int | None


def place_of(known: Place | None, generation: Generation, record: Record) -> Place:
    """Return the place of a run after one more of its records, in the order of reading."""
    if known is not None and (known.offset is not None or record.topic != generation.journal):
        return known
    return Place(generation, record.partition, record.offset if record.topic == generation.journal else None)


async def fold_runs_at(log: EventLog, places: Mapping[str, Place]) -> dict[str, RunState]:
    """Fold the journals of these runs, by id; a record that nobody can read is passed over.

    Raises:
        LogUnavailableError
    """
    states: dict[str, RunState] = {}
    for journal in {place.generation.journal for place in places.values()}:
        of_journal = {run_id: one for run_id, one in places.items() if one.generation.journal == journal}
        starts: dict[int, int] = {}
        for place in of_journal.values():
            if place.offset is not None:
                starts[place.partition] = min(place.offset, starts.get(place.partition, place.offset))
        ends = await log.end(journal)
        until = {partition: ends[partition] for partition in starts}
        async for record in log.read(journal, starts, until=until, types=OF_RUNS):
            if record.key in of_journal:
                _fold(states, record)
    return states


def _fold(states: dict[str, RunState], record: Record) -> None:
    try:
        event = record.unchecked
        if event.event_type in OF_RUNS:
            states[record.key] = fold_event(states.get(record.key), event, record.key)
    except WRONG as error:
        pass_over(record, error)


def fold_event(state: RunState | None, event: EventEnvelope, run_id: str) -> RunState:
    """Fold the next event of a run's journal; None: it is the first one."""
    found = _FOLD.apply(state or RunState(run_id=run_id), event)
    assert isinstance(found, RunState), "events of runs alone are folded"
    return found


def waits_of(run: RunState) -> tuple[Wait, ...]:
    """Return what a run waits for by its journal; empty: it does not wait, or that is not recorded."""
    if run.status != "waiting":
        return ()
    return tuple(wait for wait, _ in zip(_waits(run), range(MOST_REASONS), strict=False))


def _waits(run: RunState) -> Iterator[Wait]:
    for approval_id, question in run.approvals.items():
        asked = one_line(question.question)
        yield Wait("approval", _people(question), asked, approval_id, question.node, question.deadline_ms)
    for timer_id, timer in run.timers.items():
        yield Wait("timer", "", timer.node, timer_id, timer.node, timer.due_ms)
    for wait_id, awaited in run.awaited.items():
        yield Wait("signal", "", one_line(awaited.name), wait_id, awaited.node)
    yield from (_call_wait(run, call_id) for call_id in run.open_calls)
    for effect_id, effect in run.open_effects.items():
        node = _node(run, effect.task)
        if effect.status == "undecided":
            yield Wait("effect", "", effect.name, effect_id, node)
        elif effect.status == "retrying":
            yield Wait("retry", "", effect.name, effect_id, node, effect.due_ms)
    for task in run.tasks.values():
        if task.status == "retrying":
            yield Wait("retry", "", task.node, None, task.node, task.due_ms)


def _call_wait(run: RunState, call_id: str) -> Wait:
    call = run.calls[call_id]
    node = _node(run, call.task)
    if call.status == "requested":
        return Wait("provider", "", f"{call.capability_id} {call.version}".rstrip(), call_id, node)
    return Wait("call", call.agent_type, call.capability_id, call_id, node)


def _people(question: PendingApproval) -> str:
    """Format who may answer: `ann or role:auditor`, and how many of them if one is not enough."""
    names = [name for name in question.approvers if name not in question.approved_by]
    shown = names[:MOST_SHOWN] + ([f"{len(names) - MOST_SHOWN} others"] if len(names) > MOST_SHOWN else [])
    who = " or ".join(shown) or ("anyone else" if question.approved_by else "anyone")
    if question.minimum is None:
        return who
    return f"{who} ({len(question.approved_by)} of {question.minimum} have approved)"


def _node(run: RunState, task: str | None) -> str | None:
    found = run.tasks.get(task or "")
    return None if found is None else found.node


async def wait_for_worker(log: EventLog, agent_type: str, record: Record) -> Wait | None:
    """Return the wait for a worker of a run that has begun, by one of its records; None: it has an owner.

    Raises:
        LogUnavailableError
    """
    for generation in await generations(log, agent_type):
        if generation.journal == record.topic:
            place = Place(generation, record.partition, record.offset)
            return await Owners(log, agent_type).wait(place, started=True)
    return None


class Owners:
    """The processes that have an agent type's partitions, read when they are first asked for."""

    def __init__(self, log: EventLog, agent_type: str) -> None:
        self._log = log
        self._agent_type = agent_type
        self._owners: dict[TopicPartition, str] | None = None
        self._is_told = True

    async def wait(self, place: Place, started: bool) -> Wait | None:
        """Return the wait for an owner, or for its turn; None: it has begun, or the log does not tell.

        Raises:
            LogUnavailableError
        """
        if self._owners is None:
            self._owners = await self._read()
        owner = self._owners.get(TopicPartition(place.generation.inbox, place.partition))
        if not self._is_told or (started and owner is not None):
            return None
        if owner is not None:
            return Wait("slot", owner)
        return Wait("worker", self._agent_type, str(place.partition))

    async def _read(self) -> dict[TopicPartition, str]:
        try:
            shares = await self._log.members(self._log.topology.workers(self._agent_type))
        except LogForbiddenError:  # a program that only starts runs need not see the group of the workers
            self._is_told = False
            return {}
        return {place: process_of(share.member) for share in shares for place in share.partitions}
