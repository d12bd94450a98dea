"""When readers of this machine take a newer version."""

from __future__ import annotations

import asyncio
from pathlib import Path

from noesium_stream.cli.commands.projections import takeover
from noesium_stream.log.open import open_log
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.group.member import group_of
from noesium_stream.projection.stored.stored_projection import current_version, describe
from tests.support.attach import Numbers
from tests.support.events import catalogue, counted
from tests.support.reading import PATIENCE_S, eventually


class Newer(Numbers):
    version = 2


async def test_a_file_whose_partition_went_to_another_machine_keeps_no_version_from_taking_over(
    tmp_path: Path,
) -> None:
    log = await open_log("memory://?partitions=2", catalogue=catalogue())
    places = await log.append([counted(n, f"k{n}") for n in range(20)])
    topic = places[0].topic
    here, there = tmp_path / "here", tmp_path / "there"
    describe(here, Numbers(), "g", None)
    describe(here, Newer(), group_of(log, Newer()), None)
    with ProjectionEngine(log, here) as engine:  # it had begun with both, when the other one came
        engine.register("numbers", Newer())
        await engine.catch_up("numbers", {topic: {0: 1, 1: 1}})
    async with (
        AttachedProjection(log, Newer(), there) as other,
        AttachedProjection(log, Newer(), here) as attached,
    ):
        await eventually(lambda: (len(other.assignment), len(attached.assignment)) == (1, 1))
        await asyncio.wait_for(takeover.take_over(log, attached, here), PATIENCE_S)
    assert current_version(here / "numbers") == 2
    await log.close()
