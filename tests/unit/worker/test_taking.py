"""A partition that cannot be taken at once, because somebody else takes it too, is taken by and by."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from noesium_stream.client import Client
from noesium_stream.errors import CommitUnknownError, FencedError, LogUnavailableError
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, Outgoing, Position
from noesium_stream.testing import HookedLog
from noesium_stream.testing.hooked import Commit
from noesium_stream.worker import Worker
from tests.support.sample_agents import Echo


@pytest.mark.parametrize(
    "error",
    [FencedError("told to"), CommitUnknownError("told to"), LogUnavailableError("told to")],
    ids=["fenced", "unknown", "absent"],
)
async def test_a_worker_that_does_not_get_a_partition_at_once_lives_on(
    tmp_path: Path, error: Exception
) -> None:
    refused: set[str] = set()

    async def commit(outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        first = outgoing[0]
        if first.envelope.event_type == "partition.acquired" and first.topic not in refused:
            refused.add(first.topic)
            raise error
        return await commit(outgoing)

    async with asyncio.timeout(20):
        inner = await open_log("memory://?partitions=1")
        log = cast(EventLog, HookedLog(inner, commit))
        async with Client(inner) as client:
            # One lies in the inbox already, the other comes while the partition is being taken.
            before = await client.start("echo", {"text": "before"})
            async with Worker(log, [(Echo, None)], home=tmp_path):
                after = await client.start("echo", {"text": "after"})
                assert await before.result() == {"reply": "BEFORE"}
                assert await after.result() == {"reply": "AFTER"}
        assert refused
        await inner.close()
