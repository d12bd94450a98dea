"""A projection that stops loses nothing of what it was about to write, and no topic that came meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import EventHeldError, LogUnavailableError, ProjectionError, StateFileError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, TopicPartition, TopicShape
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.base import BaseProjection
from noesium_stream.projection.fold import flush_schedule as flushing
from noesium_stream.projection.group import member
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import state_path
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted, sold
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1", catalogue=catalogue())
    yield log
    await log.close()


class Halves(BaseProjection[list[float]]):
    """Its state cannot be stored after a negative number, which is noticed when it is written."""

    name = "halves"
    topics = ("events.*",)
    on_error = "stop"
    bad = True

    def initial_state(self) -> list[float]:
        return []

    def key(self, event: Any) -> str | None:
        return event.partition_key  # type: ignore[no-any-return]

    def apply(self, state: list[float], event: Any) -> list[float]:
        n = event.payload["n"]
        return [*state, float("nan") if n < 0 and self.bad else n / 2]


async def _flush(attached: AttachedProjection) -> None:
    attached.flush()


async def _query(attached: AttachedProjection) -> None:
    await attached.query("k")


async def _scan(attached: AttachedProjection) -> None:
    list(attached.scan())


ASK: dict[str, Callable[[AttachedProjection], Awaitable[None]]] = {
    "flush": _flush,
    "query": _query,
    "scan": _scan,
}


@pytest.mark.parametrize("how", sorted(ASK))
async def test_what_comes_after_a_state_that_cannot_be_stored_is_not_written_without_it(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(flushing, "FLUSH_S", 1000.0)  # it is written when it is asked
    attached = AttachedProjection(log, Halves(), tmp_path)
    await attached.start()
    places = await log.append([counted(1, "k"), counted(-1, "k"), counted(2, "k")])
    await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
    with pytest.raises(EventHeldError):
        await ASK[how](attached)
    await attached._member.discover()  # it also notes how far the log was read
    tp = TopicPartition(places[0].topic, 0)
    [place] = await log.append([counted(3, "k")])
    with pytest.raises(EventHeldError):
        await asyncio.wait_for(attached.wait(), PATIENCE_S)
    await attached.close()
    path = state_path(tmp_path, Halves(), tp)
    file = StateFile.open_to_read(path)
    assert file.manifest.cursor == 0
    file.close()
    mended = Halves()
    mended.bad = False
    async with AttachedProjection(log, mended, tmp_path) as again:
        await asyncio.wait_for(again.wait_for(place), PATIENCE_S)
        assert await again.query("k") == [0.5, -0.5, 1.0, 1.5]


async def test_a_topic_that_comes_while_the_group_is_joined_anew_is_followed(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "RETRY_S", 0.01)
    [place] = await log.append([counted(1, "k")])
    async with AttachedProjection(log, Numbers(), tmp_path, discover_interval=0.05) as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        joining, may_join = asyncio.Event(), asyncio.Event()
        subscribe = log.subscribe

        async def slow(*arguments: Any, **options: Any) -> Any:
            joining.set()
            await may_join.wait()
            return await subscribe(*arguments, **options)

        monkeypatch.setattr(log, "subscribe", slow)
        attached._member._trouble = LogUnavailableError("gone for a moment")
        attached._member._wake.set()
        await asyncio.wait_for(joining.wait(), PATIENCE_S)
        attached._member._trouble = None
        [late] = await log.append([sold(2, "k")])
        waiting = asyncio.create_task(attached.wait_for(late))  # it looks for the topic
        await eventually(lambda: late.topic in attached._member.layout)
        may_join.set()
        await asyncio.wait_for(waiting, PATIENCE_S)


async def test_who_waits_for_a_topic_that_is_deleted_is_told(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [place] = await log.append([counted(1, "k")])
    async with AttachedProjection(log, Numbers(), tmp_path, discover_interval=0.05) as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        later = asyncio.create_task(attached.wait_for(place._replace(offset=5)))
        asked = asyncio.Event()

        async def further(topic: str) -> dict[int, int]:
            asked.set()
            return {0: 9}

        monkeypatch.setattr(log, "end", further)
        caught = asyncio.create_task(attached.wait_until_caught_up())
        await asyncio.wait_for(asked.wait(), PATIENCE_S)

        async def nothing() -> dict[str, TopicShape]:
            return {}

        monkeypatch.setattr(log, "layout", nothing)
        with pytest.raises(ProjectionError, match="does not fold"):
            await asyncio.wait_for(later, PATIENCE_S)
        await asyncio.wait_for(caught, PATIENCE_S)


async def test_a_file_that_is_made_anew_while_its_partition_is_only_being_assigned_lacks_nothing(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = await log.append([counted(n, "k") for n in range(3)])
    tp = TopicPartition(places[0].topic, places[0].partition)
    async with AttachedProjection(log, Numbers(), tmp_path, discover_interval=0.05) as attached:
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
        subscription = attached._member._subscription
        assert subscription is not None
        seek, position = subscription.seek, subscription.position
        too_early = asyncio.Event()

        def ignored(starts: Mapping[TopicPartition, int]) -> None:
            too_early.set()

        with monkeypatch.context() as early:
            early.setattr(subscription, "seek", ignored)
            early.setattr(subscription, "position", lambda tp: None)
            attached._member._share.start_over(tp, StateFileError("it is damaged."))
            attached._member._wake.set()
            await asyncio.wait_for(too_early.wait(), PATIENCE_S)
        assert (subscription.seek, subscription.position) == (seek, position)
        [place] = await log.append([counted(3, "k")])
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        assert await attached.query("k") == [0, 1, 2, 3]
