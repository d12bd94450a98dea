"""A fact that a program appends again, because it does not know whether it was, is folded once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from noesium_stream.event.envelope import AgentRef
from noesium_stream.projection.attached import AttachedProjection
from tests.support.backends import Backend
from tests.support.events import counted
from tests.support.folding import History
from tests.support.reading import PATIENCE_S


async def test_a_repeated_fact_counts_once_whoever_folds_it(backend: Backend, tmp_path: Path) -> None:
    log = await backend.open()
    facts = [counted(number, "k") for number in (1, 2, 3)]
    forged = facts[0].replace(producer=AgentRef("another", "tester"), payload={"n": 9})
    await log.append([facts[0]])
    await log.append([facts[0]])
    [place] = await log.append([facts[1]])
    async with AttachedProjection(log, History(), tmp_path / "first") as attached:
        await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
        assert await attached.query("k") == [1, 2]
    for fact in (facts[0], forged, facts[1]):
        await log.append([fact])
    [place] = await log.append([facts[2]])
    for folder in ("first", "second"):
        async with AttachedProjection(log, History(), tmp_path / folder) as attached:
            await asyncio.wait_for(attached.wait_for(place), PATIENCE_S)
            assert await attached.query("k") == [1, 2, 9, 3], folder
