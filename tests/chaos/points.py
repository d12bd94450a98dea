"""The instants at which the harness kills a process, by name.

A process that is armed with one stands still there, whole (SIGSTOP), and says so on its pipe; whoever started
it then kills it. The code that runs is the package's own: what is put around it says where it is and nothing
else, and does so in that process alone. On Kafka `during-commit` and `after-commit` are on the wire (`wire`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from noesium_stream.kernel.step.effect import Effect
from noesium_stream.log.kafka.transactional_producer import TransactionalProducer
from noesium_stream.log.kafka.writer import KafkaWriter
from noesium_stream.log.port import Outgoing, Tenure
from noesium_stream.log.prepare import Prepared
from noesium_stream.projection.state.state_file import StateFile as ProjectionFile
from noesium_stream.state_file.checksummed_file import ChecksummedFile
from noesium_stream.worker import tenure as run_tenure
from noesium_stream.worker.commit.committer import Committer
from noesium_stream.worker.handlers.events import Handling
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.ownership.owner import PartitionOwner
from noesium_stream.worker.state import restore
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.state_file import StateFile
from noesium_stream.worker.state.state_keeper import StateKeeper, StateStore
from tests.chaos.ledger import Ledger
from tests.chaos.points_commit import arm_commit
from tests.chaos.points_sqlite import arm_sqlite
from tests.chaos.workload import Summed, Tally


class Strike:
    """When a process stands still.

    Args:
        pipe: where it says so.
        number: at which arrival, from 1.
        chance: what else is left to chance.
    """

    def __init__(self, pipe: int, number: int, chance: Random) -> None:
        self.chance = chance
        self._pipe = pipe
        self._left = number

    def due(self) -> bool:
        """Count an arrival; whether it is the one."""
        self._left -= 1
        return self._left == 0

    def again(self) -> None:
        """The arrival that was due has come to nothing: the next one is."""
        self._left = 1

    def here(self, what: str = "") -> None:
        """Stand still until somebody kills this process, or lets it go on (SIGCONT)."""
        os.write(self._pipe, f"at {what}\n".encode())
        # To this thread: a signal to the process could be taken by another one, and this one would go on.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def perhaps(self, what: str = "") -> None:
        """Count an arrival, and stand still if it is the one."""
        if self.due():
            self.here(what)


Arm = Callable[[Strike, Ledger], None]


@dataclass(frozen=True, slots=True)
class Point:
    """An instant.

    Attributes:
        arm: puts it into the process that it is called in.
        scene: who is struck: `worker` (at work from the beginning), `taker` (from a dead one), `giver` and
            `joiner` (of a rebalance), `leaver` (which was sent SIGTERM), or `projection`.
        most: at most at so many arrivals, which every workload brings.
        wire: on Kafka: whether EndTxn's `request` or its `answer` is held, instead of the process.
    """

    arm: Arm
    scene: str = "worker"
    most: int = 1
    wire: str | None = None


POINTS: Final[dict[str, Point]] = {}


def point(name: str, scene: str = "worker", most: int = 1, wire: str | None = None) -> Callable[[Arm], Arm]:
    """Keep a point under its name."""

    def keep(arm: Arm) -> Arm:
        POINTS[name] = Point(arm, scene, most, wire)
        return arm

    return keep


def put(owner: Any, name: str, function: Any) -> None:
    """Put something in the place of a class' or module's attribute, for as long as this process lives."""
    setattr(owner, name, function)


# -- a commit ------------------------------------------------------------------------------------------------


def of_runs(outgoing: Sequence[Outgoing]) -> bool:
    """Whether a commit says more than who has a partition."""
    return any(not record.envelope.event_type.startswith(("partition.", "agent.")) for record in outgoing)


def of_handlers(outgoing: Sequence[Outgoing]) -> bool:
    """Whether a commit has what a handler made of its events."""
    return any(record.envelope.event_type == Summed.TYPE for record in outgoing)


def _doom_commits(
    strike: Strike, which: Callable[[Sequence[Outgoing]], bool] = of_runs
) -> Callable[[TransactionalProducer], bool]:
    """Choose a commit on Kafka; what is returned tells whether a producer is at it."""
    commit, doomed = KafkaWriter.commit, list[TransactionalProducer]()

    async def chosen(self: KafkaWriter, outgoing: Sequence[Outgoing]) -> Any:
        if which(outgoing) and strike.due():
            doomed.append(self.producer)
        return await commit(self, outgoing)

    put(KafkaWriter, "commit", chosen)
    return lambda producer: producer in doomed


@point("before-begin", most=16)
def before_begin(strike: Strike, ledger: Ledger) -> None:
    arm_sqlite(strike, "before-begin", of_runs)
    doomed, begin = _doom_commits(strike), TransactionalProducer.begin

    def stopped(self: TransactionalProducer) -> None:
        if doomed(self):
            strike.here()
        begin(self)

    put(TransactionalProducer, "begin", stopped)


@point("after-first-produce", most=10)
def after_first_produce(strike: Strike, ledger: Ledger) -> None:
    arm_sqlite(strike, "after-first-produce", of_runs)
    doomed, produce = _doom_commits(strike), TransactionalProducer.produce

    def stopped(
        self: TransactionalProducer,
        records: Sequence[Prepared],
        headers: Sequence[Any] | None = None,
        *,
        told: bool = True,
    ) -> None:
        if doomed(self):
            produce(self, records[:1], None if headers is None else headers[:1], told=told)
            self.flush()  # it lies in its partition, in an open transaction
            strike.here()
        produce(self, records, headers, told=told)

    put(TransactionalProducer, "produce", stopped)


@point("before-commit", most=16)
def before_commit(strike: Strike, ledger: Ledger) -> None:
    _before_commit(strike, of_runs)


@point("before-handler-commit", most=6)
def before_handler_commit(strike: Strike, ledger: Ledger) -> None:
    _before_commit(strike, of_handlers)


def _before_commit(strike: Strike, which: Callable[[Sequence[Outgoing]], bool]) -> None:
    arm_sqlite(strike, "before-commit", which)
    doomed, flush = _doom_commits(strike, which), TransactionalProducer.flush

    def stopped(self: TransactionalProducer) -> None:
        flush(self)
        if doomed(self):
            strike.here()

    put(TransactionalProducer, "flush", stopped)


@point("during-commit", most=16, wire="request")
def during_commit(strike: Strike, ledger: Ledger) -> None:
    arm_sqlite(strike, "during-commit", of_runs)


@point("after-commit", most=16, wire="answer")
def after_commit(strike: Strike, ledger: Ledger) -> None:
    arm_sqlite(strike, "after-commit", of_runs)


# -- an effect -----------------------------------------------------------------------------------------------


@point("after-intent", most=10)
def after_intent(strike: Strike, ledger: Ledger) -> None:
    intend = Effect._intend

    async def stopped(self: Effect, effect_id: str) -> None:
        await intend(self, effect_id)
        strike.perhaps()

    put(Effect, "_intend", stopped)


@point("during-effect", most=10)
def during_effect(strike: Strike, ledger: Ledger) -> None:
    ledger.during = strike.perhaps


@point("after-effect", most=10)
def after_effect(strike: Strike, ledger: Ledger) -> None:
    ledger.after = strike.perhaps


# -- a tool call ---------------------------------------------------------------------------------------------


@point("before-tool-invoked", most=2)
def before_tool_invoked(strike: Strike, ledger: Ledger) -> None:
    arm_commit("before:tool.invoked", strike)


@point("after-tool-invoked", most=2)
def after_tool_invoked(strike: Strike, ledger: Ledger) -> None:
    arm_commit("after:tool.invoked", strike)


@point("before-tool-completed", most=2)
def before_tool_completed(strike: Strike, ledger: Ledger) -> None:
    arm_commit("before:tool.completed", strike)


@point("after-tool-completed", most=2)
def after_tool_completed(strike: Strike, ledger: Ledger) -> None:
    arm_commit("after:tool.completed", strike)


# -- a takeover ----------------------------------------------------------------------------------------------


@point("during-restore", scene="taker", most=20)
def during_restore(strike: Strike, ledger: Ledger) -> None:
    entry_of = restore.entry_of

    def stopped(record: Any) -> Any:
        strike.perhaps()
        return entry_of(record)

    put(restore, "entry_of", stopped)


@point("rebalance-giving", scene="giver", most=2)
def rebalance_giving(strike: Strike, ledger: Ledger) -> None:
    _while_ending(strike)


@point("rebalance-taking", scene="joiner", most=2)
def rebalance_taking(strike: Strike, ledger: Ledger) -> None:
    """Before the writer is open, before its first commit, or before the journal is read."""
    which = strike.chance.randrange(3)
    tenure, acquired, opened = Assignment.tenure, run_tenure.acquired, StateStore.open

    async def assigned(self: Assignment) -> Tenure:
        found = await tenure(self)
        if which == 0:
            strike.perhaps("assigned")
        return found

    async def fenced(*arguments: Any, **options: Any) -> Outgoing:
        if which == 1:
            strike.perhaps("fenced")
        return await acquired(*arguments, **options)

    async def committed(self: StateStore) -> StateKeeper:
        if which == 2:
            strike.perhaps("acquired")
        return await opened(self)

    put(Assignment, "tenure", assigned)
    put(run_tenure, "acquired", fenced)
    put(StateStore, "open", committed)


@point("in-sigterm", scene="leaver", most=2)
def in_sigterm(strike: Strike, ledger: Ledger) -> None:
    _while_ending(strike)


def _while_ending(strike: Strike) -> None:
    """While partitions are given up: at the beginning, before the last commits, with the snapshot written,
    with the writer closed.
    """
    which = strike.chance.randrange(4)
    release, drain, close = PartitionOwner.release, Committer.drain, StateKeeper.close

    async def released(self: PartitionOwner[Any]) -> None:
        if which == 0:
            strike.perhaps("told")
        await release(self)
        if which == 3:
            strike.perhaps("released")

    async def drained(self: Committer, patience_s: float) -> None:
        if which == 1:
            strike.perhaps("draining")
        await drain(self, patience_s)

    def closed(self: StateKeeper) -> None:
        close(self)
        if which == 2:
            strike.perhaps("written")

    put(PartitionOwner, "release", released)
    put(Committer, "drain", drained)
    put(StateKeeper, "close", closed)


# -- local state ---------------------------------------------------------------------------------------------


@point("during-fold", most=20)
def during_fold(strike: Strike, ledger: Ledger) -> None:
    """Of the worker's state: the commit is on the log, and a part of it is in memory."""
    evolve, committed = PartitionState.evolve, StateKeeper.committed
    inside = False

    def folded(self: PartitionState, entry: Any) -> None:
        evolve(self, entry)
        if inside:
            strike.perhaps()

    def taken(self: StateKeeper, *arguments: Any) -> None:
        nonlocal inside
        inside = True
        try:
            committed(self, *arguments)
        finally:
            inside = False

    put(PartitionState, "evolve", folded)
    put(StateKeeper, "committed", taken)


@point("during-handler-fold", most=30)
def during_handler_fold(strike: Strike, ledger: Ledger) -> None:
    """Of a handler's state: events are handled and folded, and nothing of it is on the log."""
    applied = Handling.applied

    def stopped(self: Handling, *arguments: Any) -> Any:
        found = applied(self, *arguments)
        if self._collecting:
            strike.perhaps()
        return found

    put(Handling, "applied", stopped)


@point("during-projection-fold", scene="projection", most=60)
def during_projection_fold(strike: Strike, ledger: Ledger) -> None:
    apply = Tally.apply

    def stopped(self: Tally, state: Any, event: Any) -> Any:
        found = apply(self, state, event)
        strike.perhaps()
        return found

    put(Tally, "apply", stopped)


@point("during-snapshot", most=3)
def during_snapshot(strike: Strike, ledger: Ledger) -> None:
    """Of the worker's state: its rows are written, and not committed."""
    _while_written(strike, StateFile)


@point("during-handler-snapshot", most=6)
def during_handler_snapshot(strike: Strike, ledger: Ledger) -> None:
    """Of a handler's state; its events are on the log."""
    _while_written(strike, ProjectionFile)


@point("during-projection-snapshot", scene="projection", most=3)
def during_projection_snapshot(strike: Strike, ledger: Ledger) -> None:
    _while_written(strike, ProjectionFile)


def _while_written(strike: Strike, kind: type[ChecksummedFile[Any]]) -> None:
    put_manifest = kind._put_manifest

    def stopped(self: ChecksummedFile[Any], body: bytes) -> None:
        put_manifest(self, body)
        strike.perhaps()

    put(kind, "_put_manifest", stopped)
