"""What a handler makes and the log does not take stops it at the event that it comes of, as an error does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from noesium_stream.errors import EventHeldError, EventValidationError, RecordTooLargeError
from noesium_stream.log import open_log
from noesium_stream.log.embedded import group
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from tests.support.reading import PATIENCE_S
from tests.support.writing import Writing, ask

COUNT = 30


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventLog]:
    monkeypatch.setattr(Writing, "texts", {})
    log = await open_log("memory://?partitions=1")
    await ask(log, COUNT)
    yield log
    await log.close()


async def stopped(log: EventLog, home: Path) -> EventHeldError:
    """What ends a worker, by itself."""
    async with Worker(log, [Writing], home=home) as worker:
        with pytest.raises(EventHeldError) as held:
            await asyncio.wait_for(worker.wait(), PATIENCE_S)
    return held.value


async def written(log: EventLog) -> list[tuple[int, int]]:
    topic = log.topology.events("letters")
    await log.ensure_topics([log.topology.spec(topic)])
    payloads = [r.envelope.payload async for r in log.read(topic, {}, until=await log.end(topic))]
    return [(one["number"], one["before"]) for one in payloads]


async def all_written(log: EventLog, home: Path) -> list[tuple[int, int]]:
    async with Worker(log, [Writing], home=home), asyncio.timeout(PATIENCE_S):
        while len(found := await written(log)) < 2 * COUNT:
            await asyncio.sleep(0)
    return found


def twice(count: int) -> list[tuple[int, int]]:
    return [(number, number) for number in range(count) for _ in range(2)]


@pytest.mark.parametrize("number", [0, 7])
async def test_what_no_log_takes_stops_the_handler_at_its_event(
    log: EventLog, tmp_path: Path, number: int
) -> None:
    Writing.texts[number] = "x" * MAX_JOURNAL_BYTES
    for _ in range(2):  # the next process meets it again
        held = await stopped(log, tmp_path)
        assert await written(log) == twice(number), "nothing behind it, nothing half"
    assert held.message.startswith(
        "The handler writing stops. It cannot take the event at "
        f"noesium.events.texts/0@{number} (texts.asked): RecordTooLargeError: letters.written "
    )
    assert "1,016," in held.message, "how many bytes it has"
    assert "the log takes 1,000,000" in held.message
    assert (held.hint or "").startswith("Keep large content elsewhere")
    assert "start the worker again: nothing is skipped" in (held.hint or "")
    Writing.texts.clear()
    assert await all_written(log, tmp_path / "elsewhere") == twice(COUNT)


class Refusing:
    """Takes no commit with what comes of one of the events."""

    def __init__(self, number: int, error: Exception) -> None:
        self.number: int | None = number
        self.error = error
        self.refused: list[int] = []

    async def __call__(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        made = [one.envelope for one in outgoing if one.envelope.event_type == "letters.written"]
        if any(event.payload["number"] == self.number for event in made):
            self.refused.append(len(made))
            raise self.error
        return await commit(outgoing)


@pytest.mark.parametrize("batch", [4, 500])
@pytest.mark.parametrize("number", [0, 7, COUNT - 1])
@pytest.mark.parametrize(
    "error",
    [RecordTooLargeError("it has 5 bytes", hint="Say less."), EventValidationError("x", "it has 5 bytes")],
)
async def test_what_the_log_alone_refuses_stops_the_handler_at_its_event(
    log: EventLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    batch: int,
    number: int,
    error: Exception,
) -> None:
    monkeypatch.setattr(group, "BATCH_RECORDS", batch)
    hook = Refusing(number, error)
    hooked = cast(EventLog, HookedLog(log, hook))
    for _ in range(2):
        held = await stopped(hooked, tmp_path)
        assert await written(log) == twice(number)
    assert hook.refused[-1] == 2, "by itself"
    assert f"@{number} (texts.asked): {type(error).__name__}: " in held.message
    assert "it has 5 bytes" in held.message
    assert held.__cause__ is not None
    assert held.__cause__.__cause__ is error
    hook.number = None
    assert await all_written(hooked, tmp_path) == twice(COUNT)


async def test_what_is_too_large_together_alone_is_handled_one_by_one(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[int]()

    async def small(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        made = [one for one in outgoing if one.envelope.event_type == "letters.written"]
        sizes.append(len(made))
        if len(made) > 2:
            raise RecordTooLargeError("too much at once")
        return await commit(outgoing)

    assert await all_written(cast(EventLog, HookedLog(log, small)), tmp_path) == twice(COUNT)
    assert max(sizes) > 2
