"""Processes that share a projection are killed at random moments while they catch up; the state is exact.

Each kill is a rebalance, and each new process another one. The numbers of every key's events are its state:
whatever is folded twice, left out or out of order shows.

    pytest -m soak tests/integration/projections/test_killed.py      200 kills in all
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest

from noesium_stream.errors import StateFileError
from noesium_stream.log.port import EventLog
from tests.support.attach import cursors_in, rows_in
from tests.support.backends import BACKENDS, Backend
from tests.support.events import counted
from tests.support.processes import Program
from tests.support.reading import PATIENCE_S

SLOW_US = 150
BACKLOG = 6_000
EACH = 300
MOST = 50
KEYS = 40


async def add(log: EventLog, first: int, count: int) -> None:
    for start in range(first, first + count, 500):
        last = min(start + 500, first + count)
        await log.append([counted(n, f"k{n % KEYS}") for n in range(start, last)])


def expected(count: int) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for n in range(count):
        rows[f"k{n % KEYS}"].append(n)
    return dict(rows)


async def killed(backend: Backend, folders: list[Path], kills: int, seed: int) -> None:
    chance = random.Random(seed)
    log = await backend.open()
    topic = log.topology.events("demo")
    await add(log, 0, BACKLOG)
    total, behind, started = BACKLOG, 0, time.monotonic()

    async def start(folder: Path) -> tuple[Path, Program]:
        return folder, await Program.start("tests.support.attach", backend.url, folder, SLOW_US)

    async def is_behind() -> bool:
        return sum(cursors_in(*folders).values()) < sum((await log.end(topic)).values())

    alive = [await start(folder) for folder in folders]
    for _ in range(kills):
        folder, program = alive.pop(chance.randrange(len(alive)))
        await program.line("ready")
        pause_s = chance.uniform(0, 0.8)
        await asyncio.sleep(pause_s)
        for _ in range(MOST):  # those that have caught up get more
            if await is_behind():
                break
            await add(log, total, EACH)
            total += EACH
        behind += await is_behind()
        await program.kill()
        alive.append(await start(folder))
        await add(log, total, EACH)
        total += EACH
    end = {(topic, partition): offset for partition, offset in (await log.end(topic)).items()}
    deadline = time.monotonic() + PATIENCE_S

    def done() -> bool:
        try:
            return rows_in(*folders) == expected(total)
        except StateFileError:
            return False  # one is being made

    while not done():
        assert time.monotonic() < deadline, (end, cursors_in(*folders), [p.lines[-1:] for _, p in alive])
        await asyncio.sleep(0.1)
    for _, program in alive:
        await program.kill()
    assert rows_in(*folders) == expected(total)
    print(f"{kills} kills in {time.monotonic() - started:.0f} s, {behind} during catch-up; seed {seed}")
    assert behind > kills / 2, "most kills hit somebody who was catching up"


@pytest.mark.parametrize("shared", [False, True], ids=["own folders", "one folder"])
@pytest.mark.parametrize("name", ["sqlite", "kafka"])
async def test_killed_at_random_while_catching_up_the_state_is_exact(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, shared: bool
) -> None:
    backend = BACKENDS[name](request)
    folders = [tmp_path / "a", tmp_path / ("a" if shared else "b")]
    try:
        await killed(backend, folders, 8 if name == "sqlite" else 4, seed=7 + shared)
    finally:
        await backend.close()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shared", [False, True], ids=["own folders", "one folder"])
async def test_killed_a_hundred_times_while_catching_up_the_state_is_exact(
    request: pytest.FixtureRequest, tmp_path: Path, shared: bool
) -> None:
    backend = BACKENDS["sqlite"](request)
    folders = [tmp_path / "a", tmp_path / ("a" if shared else "b")]
    try:
        await killed(backend, folders, 100, seed=200 + shared)
    finally:
        await backend.close()
