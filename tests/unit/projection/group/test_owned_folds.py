"""The folds of one process: opened anew while partitions go and come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import ProjectionError, StateFileError
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.group.owned_folds import BUSY_PAUSE_S, Share
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.folder import state_path
from noesium_stream.state_file.claim import locked
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted
from tests.support.reading import PATIENCE_S, stored


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1", catalogue=catalogue())
    await log.append([counted(n, "k") for n in range(3)])
    yield log
    await log.close()


@pytest.fixture
def tp(log: EventLog) -> TopicPartition:
    return TopicPartition(log.topology.events("demo"), 0)


class Gate:
    """Holds every opening back, from when it is closed until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        inner = Share._topic

        async def topic(share: Share, name: str) -> Any:
            self.reached.set()
            await self.open.wait()
            return await inner(share, name)

        monkeypatch.setattr(Share, "_topic", topic)

    async def hold(self, share: Share) -> asyncio.Task[dict[TopicPartition, int]]:
        """`open_broken` on its way."""
        self.open.clear()
        self.reached.clear()
        opening = asyncio.create_task(share.open_broken())
        await asyncio.wait_for(self.reached.wait(), PATIENCE_S)
        return opening


async def broken(log: EventLog, folder: Path, tp: TopicPartition, said: list[str]) -> Share:
    share = Share(log, Numbers(), folder, said.append, None)
    assert await share.take_over({tp}) == {tp: 0}
    share.take(await stored(log, tp.topic))
    share.flush()
    share.start_over(tp, StateFileError("it is damaged."))
    assert share.folds == {}
    return share


async def test_a_file_that_is_made_anew_is_folded_from_the_beginning(
    log: EventLog, tp: TopicPartition, tmp_path: Path
) -> None:
    said: list[str] = []
    share = await broken(log, tmp_path, tp, said)
    share.take(await stored(log, tp.topic))
    assert share.folds == {}, "what is read on before it starts over is left out"
    assert await share.open_broken() == {tp: 0}
    share.take(await stored(log, tp.topic))
    assert share.folds[tp].state("k") == [0, 1, 2]
    assert await share.open_broken() == {}
    assert said == ["it is damaged. It is discarded; the events are folded again."]
    share.let_go_of_all()


async def test_a_partition_that_goes_while_its_file_is_made_anew_is_not_held(
    log: EventLog, tp: TopicPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = await broken(log, tmp_path, tp, [])
    gate = Gate(monkeypatch)
    opening = await gate.hold(share)
    share.let_go([tp])
    gate.open.set()
    assert await opening == {}
    assert share.folds == {}
    locked(state_path(tmp_path, Numbers(), tp)).close()


async def test_a_partition_that_goes_and_comes_back_meanwhile_is_opened_once(
    log: EventLog, tp: TopicPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = await broken(log, tmp_path, tp, [])
    gate = Gate(monkeypatch)
    opening = await gate.hold(share)
    share.let_go([tp])
    coming = asyncio.create_task(share.take_over({tp}))
    await asyncio.sleep(0)
    gate.open.set()
    async with asyncio.timeout(PATIENCE_S):
        assert await coming == {tp: 0}
    await opening
    share.take(await stored(log, tp.topic))
    assert share.folds[tp].state("k") == [0, 1, 2]
    share.let_go_of_all()


async def test_all_are_closed_though_one_of_them_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await open_log("memory://?partitions=3", catalogue=catalogue())
    await log.append([counted(n, f"k{n}") for n in range(30)])
    topic = log.topology.events("demo")
    share = Share(log, Numbers(), tmp_path, lambda text: None, None)
    tps = [TopicPartition(topic, number) for number in range(3)]
    await share.take_over(tps)
    share.take(await stored(log, topic))
    commit = StateFile.commit

    def full(file: StateFile, *arguments: Any) -> None:
        if file.manifest.identity.partition == 1:
            raise ProjectionError("no room.")
        commit(file, *arguments)

    monkeypatch.setattr(StateFile, "commit", full)
    with pytest.raises(ProjectionError, match="no room"):
        share.let_go(tps)
    assert share.folds == {}
    written = {}
    for tp in tps:
        path = state_path(tmp_path, Numbers(), tp)
        locked(path).close()
        file = StateFile.open_to_read(path)
        written[tp.partition] = file.manifest.cursor
        file.close()
    end = await log.end(topic)
    assert written == {0: end[0], 1: 0, 2: end[2]}
    await log.close()


async def test_a_file_that_turns_out_damaged_when_its_partition_goes_is_removed(
    log: EventLog, tp: TopicPartition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    share = Share(log, Numbers(), tmp_path, said.append, None)
    await share.take_over({tp})
    share.take(await stored(log, tp.topic))

    def damaged(*arguments: Any) -> None:
        raise StateFileError("a row is missing.")

    with monkeypatch.context() as patch:
        patch.setattr(StateFile, "commit", damaged)
        share.let_go([tp])
    assert said == ["a row is missing. It is discarded; the events are folded again."]
    assert not state_path(tmp_path, Numbers(), tp).exists()
    assert await share.take_over({tp}) == {tp: 0}
    share.let_go_of_all()


async def test_two_that_wait_for_the_same_locked_file_do_not_wait_for_each_other(
    log: EventLog, tp: TopicPartition, tmp_path: Path
) -> None:
    path = state_path(tmp_path, Numbers(), tp)
    path.parent.mkdir(parents=True)
    share = Share(log, Numbers(), tmp_path, lambda text: None, None)
    with locked(path):
        opening = [asyncio.create_task(share.take_over({tp})) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in opening)
    async with asyncio.timeout(PATIENCE_S):
        assert await asyncio.gather(*opening) == [{tp: 0}, {tp: 0}]
    share.let_go_of_all()


async def test_a_file_whose_last_owner_folds_on_while_it_is_waited_for_is_kept(
    log: EventLog, tp: TopicPartition, tmp_path: Path
) -> None:
    said: list[str] = []
    owner = Share(log, Numbers(), tmp_path, said.append, None)
    await owner.take_over({tp})
    next_one = Share(log, Numbers(), tmp_path, said.append, None)
    coming = asyncio.create_task(next_one.take_over({tp}))
    await asyncio.sleep(3 * BUSY_PAUSE_S)  # it has asked for the log's end
    await log.append([counted(n, "k") for n in range(3, 6)])
    owner.take(await stored(log, tp.topic))
    owner.let_go_of_all()
    assert await asyncio.wait_for(coming, PATIENCE_S) == {tp: 6}
    assert next_one.folds[tp].state("k") == list(range(6))
    assert said == []
    next_one.let_go_of_all()
