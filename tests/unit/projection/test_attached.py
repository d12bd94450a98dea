"""What an attached projection does when its files, its log or its group are in the way; on memory://."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import (
    EventHeldError,
    KeyElsewhereError,
    LogUnavailableError,
    ProjectionError,
    StateBusyError,
)
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, GroupShare, TopicPartition, TopicShape
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.fold.redrive import ask
from noesium_stream.projection.group import owned_folds as share_module
from noesium_stream.projection.state.manifest import Identity
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import state_path
from tests.support.attach import Numbers, Sums, rows_in
from tests.support.events import catalogue, counted, noted, outgoing, sold
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=2", catalogue=catalogue())
    yield log
    await log.close()


def attach(log: EventLog, folder: Path, **options: Any) -> AttachedProjection:
    return AttachedProjection(log, Numbers(), folder, **{"discover_interval": 0.05, **options})


async def locked(log: EventLog, folder: Path, tp: TopicPartition) -> StateFile:
    """The file of a partition as another process holds it."""
    path = state_path(folder, Numbers(), tp)
    return StateFile.open(path, Identity("numbers", 1, "?", tp.topic, "?", tp.partition))


async def test_a_file_that_its_last_owner_still_holds_is_waited_for(log: EventLog, tmp_path: Path) -> None:
    [place] = await log.append([counted(1, "k")])
    holder = await locked(log, tmp_path, TopicPartition(place.topic, place.partition))
    async with attach(log, tmp_path) as attached:
        waiting = asyncio.create_task(attached.wait_for(place))
        await asyncio.sleep(5 * share_module.BUSY_PAUSE_S)
        assert not waiting.done()
        holder.close()
        await asyncio.wait_for(waiting, PATIENCE_S)
        assert await attached.query("k") == [1]


async def test_a_file_that_another_process_goes_on_holding_is_an_error(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_module, "BUSY_TRIES", 3)
    [place] = await log.append([counted(1, "k")])
    holder = await locked(log, tmp_path, TopicPartition(place.topic, place.partition))
    attached = attach(log, tmp_path)
    await attached.start()
    with pytest.raises(StateBusyError, match="another process"):
        await asyncio.wait_for(attached.wait(), PATIENCE_S)
    assert await log.members(attached.group) == []
    with pytest.raises(ProjectionError, match=r"has stopped: .* is being written by") as raised:
        await attached.wait_for(place)
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("Stop the other one")
    await attached.close()
    holder.close()
    async with attach(log, tmp_path) as again:
        await asyncio.wait_for(again.wait_for(place), PATIENCE_S)


async def test_a_partition_that_is_taken_and_not_open_yet_is_waited_for(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [place] = await log.append([counted(1, "k")])
    may_open = asyncio.Event()
    topic_of = share_module.Share._topic

    async def slow(self: Any, topic: str) -> Any:
        await may_open.wait()
        return await topic_of(self, topic)

    monkeypatch.setattr(share_module.Share, "_topic", slow)
    async with attach(log, tmp_path) as attached:
        asked: list[str] = []
        members = log.members

        async def noted(group: str) -> list[GroupShare]:
            found = await members(group)
            asked.extend(share.member for share in found if share.partitions)
            return found

        monkeypatch.setattr(log, "members", noted)
        waiting = [asyncio.create_task(attached.wait_for(place)), asyncio.create_task(attached.query("k"))]
        await eventually(lambda: len(asked) >= 2)
        assert not any(task.done() for task in waiting)
        may_open.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*waiting)


async def test_a_partition_that_nobody_has_is_waited_for_until_somebody_has_it(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [place] = await log.append([counted(1, "k")])
    tp = TopicPartition(place.topic, place.partition)
    async with attach(log, tmp_path) as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        attached._member._share.let_go([tp])
        answers = [[], [], [GroupShare("there/7/x", frozenset({tp}))]]

        async def members(group: str) -> list[GroupShare]:
            return answers.pop(0)

        monkeypatch.setattr(log, "members", members)
        with pytest.raises(KeyElsewhereError, match="there/7") as raised:
            await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        assert raised.value.owner == "there/7"
        assert answers == []


async def test_a_merged_key_whose_parts_others_have_too_is_not_sent_to_one_of_them(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [place] = await log.append([counted(1, "k")])
    async with AttachedProjection(log, Sums(), tmp_path) as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        theirs = [tp for tp in attached.assignment if tp.partition != place.partition]
        attached._member._share.let_go(theirs)
        shares = [GroupShare("there/7/x", frozenset(theirs))]

        async def members(group: str) -> list[GroupShare]:
            return shares

        monkeypatch.setattr(log, "members", members)
        with pytest.raises(KeyElsewhereError) as raised:
            await asyncio.wait_for(attached.query("1"), PATIENCE_S)
        assert raised.value.owner == "there/7"
        assert raised.value.hint is not None
        assert "ProjectionEngine" in raised.value.hint


async def test_a_log_that_is_away_when_topics_are_looked_for_is_said_once_and_asked_again(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    asked = 0
    layout = log.layout
    async with attach(log, tmp_path, report=said.append) as attached:

        async def away() -> dict[str, TopicShape]:
            nonlocal asked
            asked += 1
            raise LogUnavailableError("nobody answers.")

        monkeypatch.setattr(log, "layout", away)
        await eventually(lambda: asked >= 3)
        monkeypatch.setattr(log, "layout", layout)
        [place] = await log.append([counted(1, "k")])
        await eventually(lambda: attached.assignment)
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
    assert said == ["nobody answers. The projection goes on when it can."]


async def test_a_log_that_is_away_when_partitions_come_is_joined_again(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    [place] = await log.append([counted(1, "k")])
    end, failures = log.end, [1, 2]

    async def away(topic: str) -> dict[int, int]:
        if failures:
            failures.pop()
            raise LogUnavailableError("nobody answers.")
        return await end(topic)

    monkeypatch.setattr(log, "end", away)
    monkeypatch.setattr("noesium_stream.projection.group.member.RETRY_S", 0.01)
    async with attach(log, tmp_path, report=said.append) as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        assert await attached.query("k") == [1]
    assert failures == []
    assert len(said) == 1


async def test_a_disk_that_is_full_stops_it_and_loses_nothing(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attached = attach(log, tmp_path)
    await attached.start()
    [place] = await log.append([counted(1, "k")])
    await eventually(lambda: rows_in(tmp_path) == {"k": [1]})

    def full(*arguments: Any) -> None:
        raise ProjectionError("no room.")

    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "commit", full)
        await log.append([counted(2, "k")])
        with pytest.raises(ProjectionError, match="no room"):
            await asyncio.wait_for(attached.wait(), PATIENCE_S)
        await attached.close()
    assert rows_in(tmp_path) == {"k": [1]}
    async with attach(log, tmp_path) as again:
        await asyncio.wait_for(again.wait_for(place._replace(offset=place.offset + 1)), PATIENCE_S)
        assert await again.query("k") == [1, 2]


async def test_a_disk_that_is_full_in_the_last_moment_is_told_by_wait(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noesium_stream.projection.fold.flush_schedule.FLUSH_S", 1000)
    attached = attach(log, tmp_path)
    await attached.start()
    [place] = await log.append([counted(1, "k")])
    await asyncio.wait_for(eventually(lambda: attached.folds), PATIENCE_S)
    await eventually(
        lambda: attached._member.has_passed(TopicPartition(place.topic, place.partition), place.offset)
    )

    def full(*arguments: Any) -> None:
        raise ProjectionError("no room.")

    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "commit", full)
        await attached.close()
    with pytest.raises(ProjectionError, match="no room"):
        await attached.wait()
    assert attached.assignment == frozenset()


async def test_a_log_made_anew_between_two_starts_is_folded_from_its_beginning(tmp_path: Path) -> None:
    said: list[str] = []
    for turn in range(2):
        log = await open_log("memory://?partitions=1", catalogue=catalogue())
        places = await log.append([counted(n, "k") for n in range(turn, 3)])
        async with attach(log, tmp_path, report=said.append) as attached:
            await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
            assert await attached.query("k") == list(range(turn, 3))
        await log.close()
    assert len(said) == 1
    assert "deleted and made anew" in said[0]


async def test_a_log_that_has_lost_its_newest_events_is_folded_again(log: EventLog, tmp_path: Path) -> None:
    said: list[str] = []
    [place] = await log.append([counted(1, "k")])
    tp = TopicPartition(place.topic, place.partition)
    async with attach(log, tmp_path) as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        attached.folds[tp].advance(1000)
    async with attach(log, tmp_path, report=said.append) as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        assert await attached.query("k") == [1]
    assert len(said) == 1
    assert "ahead of the log" in said[0]


async def test_closing_its_log_ends_it_without_an_error(tmp_path: Path) -> None:
    log = await open_log("memory://?partitions=1", catalogue=catalogue())
    attached = attach(log, tmp_path)
    await attached.start()
    places = await log.append([counted(1, "k")])
    await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
    await log.close()
    await asyncio.wait_for(attached.wait(), PATIENCE_S)
    await attached.close()
    assert rows_in(tmp_path) == {"k": [1]}


async def test_an_error_of_a_topic_that_comes_later_stops_all_and_keeps_what_was_folded(
    log: EventLog, tmp_path: Path
) -> None:
    class NoShop(Numbers):
        name = "numbers"
        on_error = "stop"

        def apply(self, state: list[int], event: Any) -> list[int]:
            if event.event_type == "shop.sold":
                raise ValueError("no shop")
            return super().apply(state, event)

    attached = AttachedProjection(log, NoShop(), tmp_path, discover_interval=0.05)
    await attached.start()
    [place] = await log.append([counted(1, "k")])
    await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
    await log.append([sold(2, "s")])
    with pytest.raises(EventHeldError, match="no shop"):
        await asyncio.wait_for(attached.wait(), PATIENCE_S)
    assert rows_in(tmp_path) == {"k": [1]}
    await attached.close()


async def test_requests_beside_a_file_are_answered_while_it_is_attached(
    log: EventLog, tmp_path: Path
) -> None:
    class Moody(Numbers):
        name = "numbers"
        good = False

        def apply(self, state: list[int], event: Any) -> list[int]:
            if event.payload["n"] == 2 and not self.good:
                raise ValueError("not now")
            return super().apply(state, event)

    moody = Moody()
    said: list[str] = []
    async with AttachedProjection(
        log, moody, tmp_path, report=said.append, discover_interval=0.05
    ) as attached:
        places = await log.append([counted(n, "k") for n in (1, 2, 3)])
        await asyncio.wait_for(attached.wait_for(places[-1]), PATIENCE_S)
        assert await attached.query("k") == [1]
        moody.good = True
        path = state_path(tmp_path, moody, TopicPartition(places[0].topic, places[0].partition))
        ask(path, None)
        await eventually(lambda: said)
        assert await attached.query("k") == [1, 2, 3]
        assert "2 letters" in said[0]


async def test_nothing_is_left_behind_by_one_that_is_closed_at_once(log: EventLog, tmp_path: Path) -> None:
    await log.append([counted(1, "k")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            attached = attach(log, tmp_path)
            await attached.start()
            await attached.close()
            await attached.close()
            await attached.wait()
        gc.collect()
    assert await log.members(attached.group) == []
    async with asyncio.timeout(PATIENCE_S):
        while len(asyncio.all_tasks()) > 1:  # one that has been told to end may need another turn
            await asyncio.sleep(0)


async def test_a_journal_that_comes_later_is_read_whole_whatever_types_are_wanted(
    log: EventLog, tmp_path: Path
) -> None:
    class Counts(Numbers):
        name = "counts"
        topics = ("agent.*.journal", "events.*")
        event_types = ("demo.counted",)

    journal = log.topology.journal("tester")
    async with AttachedProjection(log, Counts(), tmp_path, discover_interval=0.05) as attached:
        [fact] = await log.append([counted(0, "k")])
        await asyncio.wait_for(attached.wait_for(fact), PATIENCE_S)
        writer = await log.writer("w")
        places = []
        for number, event in enumerate([counted(1, "k"), noted(2, "k"), counted(3, "k")]):
            numbered = outgoing([event], journal, 0, "k", noesium_seq=str(number).encode())
            places += await writer.commit(numbered)
        async with asyncio.timeout(PATIENCE_S):
            await attached.wait_for(places[-1])
        tp = TopicPartition(journal, 0)
        assert attached.folds[tp].state("k") == [1, 3]
        assert attached.folds[tp].cursor > places[-1].offset
