"""An attached projection whose files, topics and partitions change between two of its own steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import (
    EventHeldError,
    LogUnavailableError,
    ProjectionError,
    StateFileError,
    TopicNotFoundError,
)
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, TopicPartition, TopicShape
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.fold import flush_schedule as flushing
from noesium_stream.projection.fold.redrive import ask
from noesium_stream.projection.group import member
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import state_path
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.support.trees import nothing_left
from tests.unit.projection.test_attached_stops import ASK, Halves


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1", catalogue=catalogue())
    yield log
    await log.close()


def ask_to_redrive(folder: Path, projection: Numbers | Halves, tp: TopicPartition) -> None:
    ask(state_path(folder, projection, tp), None)


async def test_a_file_that_is_made_anew_while_its_partition_arrives_lacks_nothing(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = await log.append([counted(n, "k") for n in range(3)])
    tp = TopicPartition(places[0].topic, places[0].partition)
    async with AttachedProjection(log, Numbers(), tmp_path, discover_interval=0.05) as attached:
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
        subscription = attached._member._subscription
        assert subscription is not None
        seek, position = subscription.seek, subscription.position
        arrived = asyncio.Event()  # on another thread, right after whatever is asked first

        def late_seek(starts: Mapping[TopicPartition, int]) -> None:
            if arrived.is_set():
                seek(starts)
            arrived.set()

        def late_position(tp: TopicPartition) -> int | None:
            found = position(tp) if arrived.is_set() else None
            arrived.set()
            return found

        monkeypatch.setattr(subscription, "seek", late_seek)
        monkeypatch.setattr(subscription, "position", late_position)
        attached._member._share.start_over(tp, StateFileError("it is damaged."))
        attached._member._wake.set()
        await asyncio.wait_for(arrived.wait(), PATIENCE_S)
        [place] = await log.append([counted(3, "k")])
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        assert await attached.query("k") == [0, 1, 2, 3]


async def test_a_topic_made_anew_with_fewer_partitions_does_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://?partitions=2", catalogue=catalogue())
    places = await log.append([counted(n, f"k{n}") for n in range(20)])
    topic = places[0].topic
    end, beginning = await log.end(topic), await log.beginning(topic)
    said: list[str] = []
    async with AttachedProjection(
        log, Numbers(), tmp_path, discover_interval=0.05, report=said.append
    ) as attached:
        await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)

        async def answer(found: Any) -> Any:
            return found

        monkeypatch.setattr(log, "layout", lambda: answer({topic: TopicShape(1, "new")}))
        monkeypatch.setattr(log, "topic_id", lambda topic: answer("new"))
        monkeypatch.setattr(log, "end", lambda topic: answer({0: end[0]}))
        monkeypatch.setattr(log, "beginning", lambda topic: answer({0: beginning[0]}))
        await eventually(lambda: len(said) == 2)
        await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)
        assert attached.assignment == {TopicPartition(topic, 0)}
        monkeypatch.undo()
        await eventually(lambda: len(attached.assignment) == 2)
        await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)
        assert dict(attached.scan()) == {f"k{n}": [n] for n in range(20)}
    await attached.wait()
    await log.close()


async def test_a_request_that_comes_when_the_state_cannot_be_written_loses_nothing(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Holding(Halves):
        on_error = "hold"

    monkeypatch.setattr(flushing, "FLUSH_S", 1000.0)
    monkeypatch.setattr(member, "RETRY_S", 0.01)
    async with AttachedProjection(log, Holding(), tmp_path, discover_interval=0.05) as attached:
        places = await log.append([counted(1, "k"), counted(-1, "k"), counted(2, "j")])
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
        tp = TopicPartition(places[0].topic, 0)
        decode, away = EnvelopeCodec.decode, asyncio.Event()

        def answered_later(codec: EnvelopeCodec, data: bytes) -> EventEnvelope:
            if not away.is_set():
                away.set()
                raise LogUnavailableError("the registry does not answer.")
            return decode(codec, data)

        monkeypatch.setattr(EnvelopeCodec, "decode", answered_later)
        ask_to_redrive(tmp_path, Holding(), tp)
        await asyncio.wait_for(away.wait(), PATIENCE_S)
        [place] = await log.append([counted(3, "j")])
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        assert await attached.query("j") == [1.0, 1.5]
        attached.flush()
        assert [letter.offset for letter in attached.folds[tp].letters()] == [1]


async def test_what_is_handed_over_while_it_ends_is_not_folded_behind_a_gap(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "FLUSH_S", 1000.0)
    attached = AttachedProjection(log, Halves(), tmp_path, discover_interval=0.05)
    await attached.start()
    places = await log.append([counted(1, "k"), counted(-1, "k"), counted(2, "k")])
    await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
    tp = TopicPartition(places[0].topic, 0)
    subscription = attached._member._subscription
    assert subscription is not None
    close = subscription.close
    given = asyncio.Event()

    async def close_behind_a_batch() -> None:
        await log.append([counted(3, "k")])
        given.set()
        with pytest.raises(EventHeldError):
            await attached._member._take((await stored(log, tp.topic))[-1:])
        await close()

    monkeypatch.setattr(subscription, "close", close_behind_a_batch)
    ask_to_redrive(tmp_path, Halves(), tp)
    with pytest.raises(EventHeldError):
        await asyncio.wait_for(attached.wait(), PATIENCE_S)
    assert given.is_set()
    await attached.close()
    mended = Halves()
    mended.bad = False
    async with AttachedProjection(log, mended, tmp_path) as again:
        await asyncio.wait_for(again.wait_until_caught_up(), PATIENCE_S)
        assert await again.query("k") == [0.5, -0.5, 1.0, 1.5]


async def test_nobody_is_told_that_an_event_was_seen_by_a_fold_that_went_back(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "FLUSH_S", 1000.0)
    attached = AttachedProjection(log, Halves(), tmp_path)
    await attached.start()
    places = await log.append([counted(1, "k"), counted(-1, "k")])
    await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
    with pytest.raises(EventHeldError):
        attached.flush()
    with pytest.raises(ProjectionError, match="has stopped"):
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
    await attached.close()


async def test_an_offset_of_a_topic_made_anew_is_not_seen_by_the_fold_of_the_old_one(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = await log.append([counted(n, "k") for n in range(3)])
    topic = places[0].topic
    async with AttachedProjection(log, Numbers(), tmp_path, discover_interval=1000) as attached:
        await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)
        fold = attached.folds[TopicPartition(topic, 0)]

        async def layout() -> dict[str, TopicShape]:
            return {topic: TopicShape(1, "new")}

        async def topic_id(topic: str) -> str:
            return "new"

        monkeypatch.setattr(log, "layout", layout)
        monkeypatch.setattr(log, "topic_id", topic_id)
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
        again = attached.folds[TopicPartition(topic, 0)]
        assert again is not fold
        assert again.manifest.identity.topic_id == "new"
        assert await attached.query("k") == [0, 1, 2]


async def test_who_waits_for_an_offset_of_a_topic_that_is_deleted_is_told(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = await log.append([counted(n, "k") for n in range(3)])
    async with AttachedProjection(log, Numbers(), tmp_path, discover_interval=1000) as attached:
        await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)

        async def layout() -> dict[str, TopicShape]:
            return {}

        async def topic_id(topic: str) -> str:
            raise TopicNotFoundError(f"there is no {topic}.")

        monkeypatch.setattr(log, "layout", layout)
        monkeypatch.setattr(log, "topic_id", topic_id)
        with pytest.raises(ProjectionError, match="does not fold"):
            await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)


@pytest.mark.parametrize("how", ["query", "scan"])
async def test_a_file_that_a_reader_finds_damaged_is_made_anew(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    places = await log.append([counted(n, "k") for n in range(3)])
    async with AttachedProjection(log, Numbers(), tmp_path) as attached:
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
        attached.flush()
        tp = TopicPartition(places[0].topic, 0)
        damaged = attached.folds[tp]
        damaged._states.clear()  # as those of long ago

        def broken(*arguments: Any) -> None:
            raise StateFileError("a row is damaged.")

        with monkeypatch.context() as patch:
            patch.setattr(StateFile, "get", broken)
            patch.setattr(StateFile, "scan", broken)
            with pytest.raises(StateFileError):
                await ASK[how](attached)
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
        assert attached.folds[tp] is not damaged
        assert await attached.query("k") == [0, 1, 2]


async def test_no_task_is_left_behind_by_one_that_has_followed(log: EventLog, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    for n in range(3):
        async with AttachedProjection(log, Numbers(), tmp_path) as attached:
            [place] = await log.append([counted(n, "k")])
            await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
    await nothing_left(before)
