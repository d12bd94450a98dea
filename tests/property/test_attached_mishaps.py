"""Attached projections that share partitions through random mishaps: all is folded once, in order."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import LogUnavailableError, StateFileError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.fold.redrive import ask
from noesium_stream.projection.group import member
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted
from tests.support.reading import PATIENCE_S

STEPS = 60


class Poison(Numbers):
    """Cannot take some events until it is mended."""

    def __init__(self) -> None:
        self.mended = 0

    def apply(self, state: list[int], event: EventEnvelope) -> list[int]:
        n = event.payload["n"]
        if n % 37 == 5 and n >= self.mended:
            raise ValueError("poison")
        return [*state, n]


class Mishaps:
    """Two processes' worth of projections, in one folder or in one each, and what befalls them."""

    def __init__(self, log: EventLog, folders: list[Path], seed: int) -> None:
        self.log, self.folders = log, folders
        self.random = random.Random(seed)
        self.projection = Poison()
        self.expected: dict[str, list[int]] = {}
        self.count = 0
        self.attached: list[AttachedProjection] = []

    async def attach(self) -> None:
        folder = self.random.choice(self.folders)
        one = AttachedProjection(self.log, self.projection, folder, discover_interval=0.02)
        await one.start()
        self.attached.append(one)

    async def events(self) -> None:
        batch = []
        for _ in range(self.random.randint(1, 30)):
            key = f"k{self.random.randint(0, 9)}"
            batch.append(counted(self.count, key))
            self.expected.setdefault(key, []).append(self.count)
            self.count += 1
        await self.log.append(batch)

    async def damage(self) -> None:
        one = self.random.choice(self.attached)
        if one.folds:
            tp = self.random.choice(sorted(one.folds))
            one._member.start_over(tp, StateFileError("it is damaged."))

    async def restart(self) -> None:
        one = self.attached.pop(self.random.randrange(len(self.attached)))
        await one.close()
        await one.wait()
        await self.attach()

    async def outage(self) -> None:
        self.random.choice(self.attached)._member.stop(LogUnavailableError("nobody answers."))

    async def redrive(self) -> None:
        if self.random.random() < 0.5:
            self.projection.mended = self.count
        for folder in self.folders:
            for path in folder.rglob("*.state"):
                ask(path, None)

    async def befall(self) -> None:
        doing: list[Any] = [self.events, self.damage, self.restart, self.outage, self.redrive]
        await self.random.choices(doing, (6, 1, 1, 1, 1))[0]()
        await asyncio.sleep(self.random.choice((0, 0, 0.001, 0.01)))

    async def end(self) -> dict[str, list[int]]:
        """What the last of them has when the others have gone and everything is mended."""
        last, *others = self.attached
        for one in others:
            await one.close()
        self.projection.mended = self.count
        await last.wait_until_caught_up()
        last.flush()
        for tp, fold in last.folds.items():
            fold.redrive(self.log.decoder)
            assert fold.manifest.held == fold.manifest.blocked == 0, tp
        found = dict(last.scan())
        await last.close()
        await last.wait()
        return found


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_befalls_them_all_is_folded_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(member, "RETRY_S", 0.005)
    monkeypatch.setattr(member, "LOOK_S", 0.01)
    log = await open_log("memory://?partitions=3", catalogue=catalogue())
    folders = [tmp_path / "a", tmp_path / "b"][: 1 + seed % 2]
    mishaps = Mishaps(log, folders, seed)
    for _ in range(2):
        await mishaps.attach()
    for _ in range(STEPS):
        await mishaps.befall()
    async with asyncio.timeout(PATIENCE_S):
        assert await mishaps.end() == mishaps.expected
    await log.close()
