"""A newer version takes over on a real Kafka, whose ends lie behind markers of transactions."""

from __future__ import annotations

import asyncio
from pathlib import Path

from noesium_stream.clock import SystemClock
from noesium_stream.projection.attached import AttachedProjection
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.versions.open_migrated import migrate
from tests.integration.projections.test_attached import seen
from tests.integration.projections.test_kafka import opened
from tests.support.kafka import KafkaServer
from tests.support.migrating import Fees, FeesByHundred, add_fees
from tests.support.reading import PATIENCE_S


async def test_what_lies_before_the_event_is_folded_by_the_older_version(
    kafka: KafkaServer, namespace: str, tmp_path: Path
) -> None:
    log = await opened(kafka, namespace)
    async with AttachedProjection(log, Fees(), tmp_path, discover_interval=0.1) as older:
        await seen(older, await add_fees(log, "a", "b", "c", "a"))
        assert await migrate(log, FeesByHundred(), tmp_path, SystemClock())
        async with AttachedProjection(log, FeesByHundred(), tmp_path, discover_interval=0.1) as newer:
            places = await add_fees(log, "a", "d")
            await seen(newer, places)
            await asyncio.wait_for(newer.wait_until_caught_up(), PATIENCE_S)
            expected = {
                "a": {"old": 2, "new": 100},
                "b": {"old": 1, "new": 0},
                "c": {"old": 1, "new": 0},
                "d": {"old": 0, "new": 100},
            }
            assert dict(newer.scan()) == expected
        await seen(older, places)
        assert dict(older.scan()) == {"a": 3, "b": 1, "c": 1, "d": 1}
    with ProjectionEngine(log) as engine:
        engine.register("fees", FeesByHundred())
        assert await engine.get_state("fees") == expected, "from the log alone"
    await log.close()
