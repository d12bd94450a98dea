"""Pieces on their way to the log: in batches, in order, and never in the way of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from noesium_stream.errors import LogUnavailableError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.worker.pieces import outbox as outbox_module
from noesium_stream.worker.pieces.outbox import MOST_WAITING, PieceOutbox
from tests.support.envelopes import envelope
from tests.support.reading import eventually

MARK: ContextVar[str] = ContextVar("mark")


class Log:
    """Takes appends, one at a time, when it may; may be away."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None

    async def append_each(self, envelopes: Sequence[EventEnvelope]) -> None:
        await self.may.wait()
        if self.error is not None:
            raise self.error
        self.batches.append([event.payload["n"] for event in envelopes])


def event(number: int) -> EventEnvelope:
    return envelope(payload={"n": number})


def outbox(log: Log, lines: list[str] | None = None) -> PieceOutbox:
    of: Any = log
    return PieceOutbox(of, (lines if lines is not None else []).append)


async def test_what_waits_is_written_in_one_append() -> None:
    log = Log()
    box = outbox(log)
    log.may.clear()
    await box.put(event(0), 1)
    while box._waiting:
        await asyncio.sleep(0)
    for number in range(1, 40):
        await box.put(event(number), 1)
    log.may.set()
    await box.flush()
    assert log.batches == [[0], list(range(1, 40))]


async def test_a_writer_that_is_too_fast_is_held_back_until_there_is_room() -> None:
    log = Log()
    box = outbox(log)
    log.may.clear()
    for number in range(MOST_WAITING):
        await box.put(event(number), 1)
    one_more = asyncio.create_task(box.put(event(MOST_WAITING), 1))
    asyncio.get_running_loop().call_soon(log.may.set)
    await one_more
    await box.flush()
    assert [number for batch in log.batches for number in batch] == list(range(MOST_WAITING + 1))
    assert box.lost == 0


async def test_large_pieces_hold_their_writer_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "HOLD_S", 0.01)
    log = Log()
    box = outbox(log)
    log.may.clear()
    for number in range(70):
        await box.put(event(number), 65_536)
    assert box.lost > 0


async def test_while_the_log_is_away_pieces_are_lost_and_that_is_said_once() -> None:
    log, lines = Log(), list[str]()
    box = outbox(log, lines)
    log.error = LogUnavailableError("no broker answers")
    for number in range(3):
        await box.put(event(number), 1)
        await eventually(lambda: box.lost == number + 1)  # noqa: B023 - called at once
    assert lines == ["pieces of answers are lost, the answers are not: no broker answers"]
    log.error = None
    await box.put(event(3), 1)
    await eventually(lambda: log.batches == [[3]])


async def test_a_log_that_hangs_holds_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "HOLD_S", 0.01)
    monkeypatch.setattr(outbox_module, "PATIENCE_S", 0.02)
    log, lines = Log(), list[str]()
    box = outbox(log, lines)
    log.may.clear()
    for number in range(3):
        await box.put(event(number), 1)
    await box.close()
    await box.put(event(9), 1)
    assert log.batches == []
    assert lines[0].startswith("pieces of answers are lost")


async def test_the_task_that_writes_does_not_carry_the_step_of_who_began() -> None:
    found = []

    class Looking(Log):
        async def append_each(self, envelopes: Sequence[EventEnvelope]) -> None:
            found.append(MARK.get("none"))

    MARK.set("a step")
    box = outbox(Looking())
    await box.put(event(0), 1)
    await box.flush()
    assert found == ["none"]
