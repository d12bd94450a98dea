"""Pieces of called runs: a log that cannot be read gives none, and nobody waits for it or fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from noesium_stream.errors import LogUnavailableError
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard import StreamPiece
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker.pieces import arrivals as arrivals_module
from noesium_stream.worker.pieces.arrivals import Listener, PieceArrivals
from tests.support.reading import PATIENCE_S, eventually

AWAY = LogUnavailableError("no broker answers")


class Failing:
    """A log whose stream topic cannot be read for a while."""

    def __init__(self, inner: EventLog) -> None:
        self.inner = inner
        self.end_fails = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.reads_to_fail = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def end(self, topic: str) -> dict[int, int]:
        if self.end_fails:
            raise AWAY
        await self.answers.wait()
        return await self.inner.end(topic)

    async def read_batches(self, *args: Any, **options: Any) -> AsyncIterator[Sequence[Record]]:
        if self.reads_to_fail:
            self.reads_to_fail -= 1
            raise AWAY
        async for batch in self.inner.read_batches(*args, **options):
            yield batch


@asynccontextmanager
async def failing() -> AsyncIterator[tuple[Failing, PieceArrivals, list[str]]]:
    log, lines = await open_log("memory://"), list[str]()
    wrapped: Any = Failing(log)
    arrivals = PieceArrivals(wrapped, lines.append)
    try:
        yield wrapped, arrivals, lines
    finally:
        await arrivals.close()
        await log.close()


def event(log: Failing, number: int) -> EventEnvelope:
    piece = StreamPiece(
        run_id="run-1", node="tell", step=1, task_path="pull:tell", epoch=1, execution=0, data=number
    )
    return EventEnvelope(
        event_id=f"01a21588-2c23-74ee-981f-25b4164630{number:02}",
        event_type=piece.event_type(),
        timestamp_ms=1_767_225_600_123,
        producer=AgentRef("teller", "teller", "local", "x"),
        trace=TraceContext("1" * 32, "2" * 16),
        partition_key="run-1",
        payload=piece.payload(),
        stream_sequence=number,
    )


async def listening(arrivals: PieceArrivals) -> Listener:
    listener = Listener(arrivals)
    await listener.open()
    listener.expect("run-1", "teller", "teller")
    return listener


async def test_a_log_that_is_away_gives_no_pieces_and_no_error() -> None:
    async with failing() as (log, arrivals, lines):
        log.end_fails = True
        for _ in range(2):
            listener = await listening(arrivals)
            assert await listener.rest() == []
            listener.close()
        assert lines == ["pieces of called runs may be lost, the answers are not: no broker answers"]


async def test_reading_goes_on_when_the_log_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals_module, "_PAUSE_S", 0.001)
    async with failing() as (log, arrivals, lines):
        log.reads_to_fail = 2
        listener = await listening(arrivals)
        await eventually(lambda: log.reads_to_fail == 0)
        await log.append_each([event(log, 0), event(log, 1)])
        async with asyncio.timeout(PATIENCE_S):
            found = [await listener.next(), await listener.next()]
        assert [piece.data for piece in found] == [0, 1]
        assert len(lines) == 1


async def test_a_log_that_answers_late_gives_what_is_written_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals_module, "CATCH_UP_S", 0.001)
    async with failing() as (log, arrivals, lines):
        log.answers.clear()
        listener = await listening(arrivals)
        assert lines == ["pieces of called runs may be lost, the answers are not: no answer"]
        following = asyncio.create_task(listener.next())
        log.answers.set()

        async def heard() -> bool:
            await log.append_each([event(log, 0)])
            return following.done()

        await eventually(heard)
        assert following.result().data == 0


async def test_a_listener_that_comes_while_the_reading_ends_begins_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arrivals_module, "LINGER_S", 0.0)
    async with failing() as (log, arrivals, _):
        first = await listening(arrivals)
        first.close()
        for _ in range(2):
            await asyncio.sleep(
                0
            )  # the timer, in the second turn, has cancelled a task that has not ended yet
        second = await listening(arrivals)
        await log.append_each([event(log, 0)])
        async with asyncio.timeout(PATIENCE_S):
            assert (await second.next()).data == 0


async def test_only_the_expected_agent_and_run_are_heard() -> None:
    async with failing() as (log, arrivals, _):
        listener = await listening(arrivals)
        stranger = event(log, 0).replace(producer=AgentRef("twin", "teller", "local", "x"))
        await log.append_each([stranger, event(log, 0)])
        async with asyncio.timeout(PATIENCE_S):
            assert (await listener.next()).data == 0
        assert await listener.rest() == []
