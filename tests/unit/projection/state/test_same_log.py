"""A log that was put back to an earlier copy and has grown again: its old states are of another log."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Position
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.group.member import GroupMember
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted
from tests.support.reading import PATIENCE_S, eventually

KEYS = ("a", "b", "c", "d", "e")


async def opened(folder: Path) -> EventLog:
    return await open_log(f"sqlite:///{folder}/log.db?partitions=2", catalogue=catalogue())


async def add(log: EventLog, numbers: Sequence[int]) -> list[Position]:
    return await log.append([counted(n, key) for n in numbers for key in KEYS])


async def folded(log: EventLog, folder: Path, said: list[str]) -> object:
    with ProjectionEngine(log, folder, report=said.append) as engine:
        engine.register("numbers", Numbers())
        return await engine.get_state("numbers")


async def put_back(folder: Path) -> EventLog:
    """A log whose state is folded, and which has other events now from its 10th on, and more of them."""
    log = await opened(folder)
    await add(log, (1, 2))
    await log.close()
    shutil.copy(folder / "log.db", folder / "copy.db")
    log = await opened(folder)
    await add(log, (3, 4))
    assert await folded(log, folder / "states", []) == {key: [1, 2, 3, 4] for key in KEYS}
    await log.close()
    for path in folder.glob("log.db*"):
        path.unlink()
    shutil.copy(folder / "copy.db", folder / "log.db")
    log = await opened(folder)
    await add(log, (5, 6, 7))
    return log


EXPECTED = {key: [1, 2, 5, 6, 7] for key in KEYS}


async def test_an_engine_folds_it_again(tmp_path: Path) -> None:
    log = await put_back(tmp_path)
    said: list[str] = []
    assert await folded(log, tmp_path / "states", said) == EXPECTED
    assert len(said) == 2, "one file per partition"
    assert all("another event there than the one that was folded last" in text for text in said)
    assert await folded(log, tmp_path / "states", said) == EXPECTED
    assert len(said) == 2
    await log.close()


async def test_who_is_attached_folds_it_again_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await put_back(tmp_path)
    said: list[str] = []
    async with AttachedProjection(log, Numbers(), tmp_path / "states", report=said.append) as attached:
        await eventually(lambda: len(said) == 2)
        await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)
        assert dict(attached.scan()) == EXPECTED
    async with AttachedProjection(log, Numbers(), tmp_path / "states", report=said.append) as attached:
        tended = asyncio.Event()
        tend = GroupMember._tend

        async def told(*arguments: object) -> float:
            looked_s = await tend(*arguments)  # type: ignore[arg-type]
            tended.set()
            return looked_s

        monkeypatch.setattr(GroupMember, "_tend", told)
        await asyncio.wait_for(attached.wait_until_caught_up(), PATIENCE_S)
        await asyncio.wait_for(tended.wait(), PATIENCE_S)
        assert dict(attached.scan()) == EXPECTED
    assert len(said) == 2
    await log.close()


async def test_what_is_retained_no_more_is_not_missed(tmp_path: Path) -> None:
    log = await opened(tmp_path)
    places = await add(log, (1, 2))
    said: list[str] = []
    await folded(log, tmp_path / "states", said)
    await log.truncate(places[0].topic, await log.end(places[0].topic))
    assert await folded(log, tmp_path / "states", said) == {key: [1, 2] for key in KEYS}
    assert said == []
    await log.close()
