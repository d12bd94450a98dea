"""A tree on a real Kafka is followed from its root to its end, with runs that begin later."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest

from noesium_stream.cli.follow_tree import follow_tree
from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S, eventually
from tests.support.tree_agents import AGENTS, calling
from tests.support.trees import children, nothing_left


async def test_the_steps_of_a_tree_are_shown_as_they_come_and_the_reader_leaves_nothing(
    kafka: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = await open_log(f"{kafka.url('f' + secrets.token_hex(4))}&partitions=2")
    async with asyncio.timeout(PATIENCE_S), Client(log) as client:
        async with Worker(log, list(AGENTS), home=tmp_path):
            run = await client.start("root", calling("middle", *[calling("leaf", {"question": "?"})] * 2))
            before = asyncio.all_tasks()
            follows = asyncio.create_task(follow_tree(run.tree_reader(), run.id, on_log="", as_json=False))
            await eventually(lambda: _asked(client, run.id, 2))
            for question in await run.questions():
                await run.approve(question.approval_id)
            await run.result()
            await follows
            before.add(follows)
            middles = await children(log, run)
            leaves = [leaf for middle in middles for leaf in await children(log, middle)]
        await nothing_left(before)
    await log.close()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(f"root {run.id[:13]}  completed") for line in lines) == 1
    assert {line.split()[1] for line in lines if line.startswith("  middle") and "completed" in line} == {
        middle.id[:13] for middle in middles
    }
    assert {line.split()[1] for line in lines if line.startswith("    leaf") and "completed" in line} == {
        leaf.id[:13] for leaf in leaves
    }


async def _asked(client: Client, run_id: str, count: int) -> bool:
    return len(await client.run_handle("root", run_id).questions()) == count
