"""What proves that a partition is owned here, and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import FencedError, LogClosedError
from noesium_stream.event import AgentRef
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker.commit.committer import Moment
from noesium_stream.worker.commit.partition_writer import PROOF_S, PartitionWriter
from noesium_stream.worker.context import PartitionContext


@pytest.fixture(autouse=True)
def proof() -> None:
    """It lasts as long as in earnest here."""


class SleepyClock(VirtualClock):
    """Its monotonic time stands still while the machine sleeps."""

    slept_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.slept_ms


class Slow(HookedLog):
    """Its commits take as long as `pauses` says, then no time."""

    def __init__(self, inner: EventLog, clock: VirtualClock) -> None:
        super().__init__(inner, self._commit)
        self._clock = clock
        self.pauses: list[float] = []
        self.written: list[str] = []

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        positions = await commit(outgoing)
        self.written += [record.envelope.event_type for record in outgoing]
        if self.pauses:
            self._clock.advance(self.pauses.pop(0))
        return positions


class Stage:
    """A partition that was taken just now."""

    def __init__(self, log: Slow, clock: SleepyClock) -> None:
        self.log, self.clock = log, clock
        self.told: list[str] = []

    async def taken(self) -> PartitionWriter:
        topology = self.log.topology
        journal = topology.journal("sample")
        await self.log.ensure_topics([topology.spec(journal)])
        context = PartitionContext(
            log=self.log,
            clock=self.clock,
            agent_ref=AgentRef("sample", "sample", "1.0.0", "instance"),
            partition=0,
            inbox=topology.inbox("sample"),
            journal=journal,
            journal_partition=0,
            key="partition-0",
            progress=self.told.append,
            tell=self.told.append,
        )
        begun = Moment.now(self.clock)
        log_writer = await self.log.writer(f"{journal}/0")
        return PartitionWriter(
            context, log_writer, begun, {}, lambda error: None, lambda records, positions: None
        )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock = SleepyClock()
    log = await open_log("memory://?partitions=1", clock=clock)
    yield Stage(Slow(cast(EventLog, log), clock), clock)
    await log.close()


async def test_that_it_was_taken_is_a_proof_as_long_as_a_commit_is_one(stage: Stage) -> None:
    writing = await stage.taken()
    stage.clock.advance(PROOF_S)
    assert writing.owned()
    await writing.assure()
    assert not stage.log.written
    stage.clock.advance(0.1)
    assert not writing.owned()
    await writing.assure()
    assert writing.owned()
    assert stage.log.written == ["partition.confirmed"]


async def test_while_the_machine_slept_somebody_else_may_have_taken_it(stage: Stage) -> None:
    writing = await stage.taken()
    stage.clock.slept_ms = 10_000
    assert not writing.owned()
    await writing.assure()
    assert stage.log.written == ["partition.confirmed"]


async def test_a_wall_clock_that_is_set_back_makes_no_proof_last_longer(stage: Stage) -> None:
    writing = await stage.taken()
    stage.clock.slept_ms = -3_600_000
    stage.clock.advance(PROOF_S + 0.1)
    assert not writing.owned()


async def test_a_writer_that_is_lost_proves_nothing_however_fresh_its_last_commit_is(stage: Stage) -> None:
    writing = await stage.taken()
    await stage.log.inner.writer(f"{stage.log.topology.journal('sample')}/0")
    stage.clock.advance(PROOF_S + 0.1)
    with pytest.raises(FencedError):
        await writing.assure()
    writing._committer.proved = Moment.now(stage.clock)  # of a commit just before
    assert not writing.owned()
    with pytest.raises(LogClosedError):
        await writing.assure()


async def test_a_log_that_answers_too_late_to_prove_anything_is_asked_again_and_it_is_said(
    stage: Stage,
) -> None:
    writing = await stage.taken()
    stage.clock.advance(PROOF_S + 0.1)
    stage.log.pauses = [PROOF_S + 1, PROOF_S + 1]
    await writing.assure()
    assert stage.log.written == ["partition.confirmed"] * 3
    assert [line.split(": ")[1] for line in stage.told] == [
        "asking the log whether it is still owned here",
        "its commits take more than 2.5 s, and no effect is called before one is sooner",
        "its commits take more than 2.5 s, and no effect is called before one is sooner",
    ]
