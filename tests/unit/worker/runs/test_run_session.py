"""What a run sends to the log: in order, and nothing after what was refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import FencedError, RecordTooLargeError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import EffectFailed, EffectRequested
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.worker.commit.committer import Committer, Submission
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.runs.run_session import RunSession

JOURNAL = "noesium.agent.sample.journal"
AGENT = AgentRef("sample", "sample", "local", "one")


class Said(DomainEvent, event_type="demo.said"):
    word: str


class Writer:
    """A log that takes what it is given when it is let; what holds the word `big` is refused."""

    writer_id = "sample"
    epoch = 1

    def __init__(self) -> None:
        self.log: list[str] = []
        self.numbers: list[bytes] = []
        self.error: Exception | None = None
        self.let = asyncio.Event()
        self.let.set()

    async def commit(self, outgoing: Sequence[Outgoing]) -> list[Position]:
        await self.let.wait()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        words = [record.envelope.payload["word"] for record in outgoing]
        if "big" in words:
            raise RecordTooLargeError("big is too big")
        self.log += words
        self.numbers += [dict(record.headers)["noesium_seq"] for record in outgoing]
        return [Position(JOURNAL, 0, number) for number in range(len(outgoing))]

    async def close(self) -> None: ...


class Owner:
    """Of one partition, on that log."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        log: Any = None
        self.context = PartitionContext(log, self.clock, AGENT, 0, "inbox", JOURNAL, 0, "partition-0")
        self.writer = Writer()
        self.lost: list[Exception] = []
        self.committer = Committer(
            self.writer,  # type: ignore[arg-type]
            JOURNAL,
            self.clock,
            lambda line: None,
            self.lost.append,
        )

    def submit(self, records: list[Outgoing]) -> Submission:
        return self.committer.submit(records)

    def session(self, run_id: str = "run-1") -> RunSession:
        command = EventEnvelope(
            event_id=self.clock.uuid7(),
            event_type="run.requested",
            timestamp_ms=self.clock.now_ms(),
            producer=AGENT,
            trace=TraceContext(self.clock.token(16), self.clock.token(8)),
            partition_key=run_id,
            payload={},
        )
        owner: Any = self
        return RunSession(
            self.context,
            owner,
            owner,
            lambda session, due_ms: None,
            lambda run_id, due_ms: True,
            lambda session, wanted: None,
            command,
        )


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    owner = Owner()
    yield owner
    owner.writer.let.set()
    await owner.committer.close()


def say(session: RunSession, *words: str) -> None:
    """Stage these and send them, waiting for nothing."""
    for word in words:
        session.stage(Said(word=word), trace=session.identity.trace, causation_id=None)
    session.flush()


async def several_turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def refused(session: RunSession) -> None:
    with pytest.raises(RecordTooLargeError, match="big is too big"):
        await session.commit()


async def test_what_was_sent_after_a_refused_batch_in_the_same_commit_is_not_on_the_log(owner: Owner):
    session, other = owner.session(), owner.session("run-2")
    owner.writer.let.clear()
    say(other, "first")  # holds the log up, so that the rest shares a commit
    await several_turns()
    say(session, "before")
    say(session, "big")
    say(session, "after")
    say(other, "others")
    owner.writer.let.set()
    await refused(session)
    await other.commit()
    assert owner.writer.log == ["first", "before", "others"]
    assert owner.writer.numbers == [b"0", b"0", b"1"]


async def test_what_was_sent_after_a_refused_batch_in_a_later_commit_is_not_on_the_log(owner: Owner):
    session = owner.session()
    owner.writer.let.clear()
    say(session, "big")
    await several_turns()  # it is on its way alone
    say(session, "after")
    owner.writer.let.set()
    await several_turns()
    assert owner.writer.log == []
    say(session, "still nobody has looked")
    await refused(session)
    await refused(session)
    assert owner.writer.log == []


async def test_what_a_run_says_once_the_refusal_was_dealt_with_is_on_the_log_without_a_gap(owner: Owner):
    session, others = owner.session(), [owner.session(f"run-{number}") for number in range(2, 9)]
    owner.writer.let.clear()
    say(others[0], "held up")
    await several_turns()
    say(session, "before")
    say(session, "big")
    for other in others:
        say(other, "others")  # each has a commit of its own between the refusal and what follows it
    say(session, "after")
    owner.writer.let.set()
    await refused(session)
    session.drop_staged()
    assert "others" not in owner.writer.log  # what was sent behind it would not have had its turn yet
    say(session, "the end")
    await session.commit()
    await session.commit()
    assert [word for word in owner.writer.log if word not in ("others", "held up")] == ["before", "the end"]
    assert owner.committer.sequences["run-1"] == 2
    assert session.only_waits() is False  # nothing of it runs


async def test_a_run_whose_batch_was_lost_with_the_partition_hears_of_it_whenever_it_looks(owner: Owner):
    session = owner.session()
    owner.writer.error = FencedError("somebody else")
    say(session, "lost")
    await several_turns()
    assert len(owner.lost) == 1
    for _ in range(2):
        with pytest.raises(FencedError, match="somebody else"):
            await session.commit()
    say(session, "more")
    with pytest.raises(FencedError, match="somebody else"):
        await session.commit()


async def test_somebody_who_stops_waiting_stops_nothing_for_the_others(owner: Owner):
    session = owner.session()
    owner.writer.let.clear()
    say(session, "word")
    waiting: list[asyncio.Task[Any]] = [asyncio.create_task(session.commit()) for _ in range(3)]
    await several_turns()
    waiting[1].cancel()
    await several_turns()
    assert [task.done() for task in waiting] == [False, True, False]
    owner.writer.let.set()
    await waiting[0]
    await waiting[2]
    assert owner.writer.log == ["word"]


async def test_giving_up_waits_for_what_was_sent_and_not_for_ever(owner: Owner):
    session = owner.session()
    owner.writer.let.clear()
    say(session, "word")
    await owner.committer.drain(0.01)
    assert owner.writer.log == []
    owner.writer.let.set()
    await owner.committer.drain(5)
    assert owner.writer.log == ["word"]


async def test_who_is_broken_off_while_a_committer_closes_does_not_break_off_its_commit(owner: Owner):
    owner.writer.let.clear()
    session = owner.session()
    say(session, "under way")
    await several_turns()
    closing = asyncio.create_task(owner.committer.close())
    await several_turns()
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    owner.writer.let.set()
    await owner.committer.close()
    await session.commit()
    assert owner.writer.log == ["under way"]


@pytest.mark.parametrize("again", [False, True])
async def test_only_the_first_call_of_an_effect_is_said_to_have_never_begun(again: bool) -> None:
    """A later one follows a decision to repeat it: something was called under its key, and may be now."""
    owner = Owner()
    session = owner.session()
    intent = EffectRequested(
        run_id="run-1",
        effect_id="e",
        name="pay",
        effect_class="external",
        fingerprint="e",
        idempotency_key="e",
    )
    trace = session.identity.trace
    for key in ("e", "e again") if again else ("e",):
        session.stage(intent, trace=trace, causation_id=None, idempotency_key=key)
    session.activity.uncalled["e"] = EffectFailed(
        run_id="run-1", effect_id="e", error_type="NotBegun", message="never", duration_ms=0, retry_in_ms=0
    )
    assert list(session.uncalled()) == ([] if again else ["e"])
