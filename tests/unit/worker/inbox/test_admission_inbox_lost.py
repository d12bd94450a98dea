"""An inbox that has lost its end, or has other records than were read: nothing new is taken for those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.log import EventLog, open_log
from tests.support.lives import Life
from tests.support.reading import PATIENCE_S, eventually
from tests.support.stores import memory_of


def done(state: dict[str, Any]) -> dict[str, Any]:
    return {"done": True}


AGENT = agent_from_graph(StateGraph(dict).add_node(done).add_edge(START, "done"))


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def cut(log: EventLog, end: int) -> None:
    """As a power cut of a broker that had not written the rest, or a backup."""
    partition = memory_of(log).partition(log.topology.inbox("sample"), 0)
    del partition.entries[end:]
    partition.end = end


async def lived(log: EventLog, home: Path, client: Client, *, again: bool) -> None:
    """A run has ended, and its command has come again, if it is to."""
    life = Life(log, AGENT, home)
    read = 2 if again else 1

    async def ended() -> None:
        for _ in range(read):
            await (await client.start("sample", {}, idempotency_key="once")).result(timeout=PATIENCE_S)
        await eventually(lambda: _is(life.tenures[0].keeper.state.manifest.position == read))

    assert await life.live(ended)


async def _is(true: bool) -> bool:
    return true


@pytest.mark.parametrize("before", [False, True], ids=["while it works", "before it comes"])
async def test_what_comes_into_an_inbox_that_was_cut_is_not_taken_for_what_was_passed_over(
    log: EventLog, tmp_path: Path, before: bool
) -> None:
    async with asyncio.timeout(PATIENCE_S), Client(log) as client:
        await lived(log, tmp_path, client, again=True)
        cut(log, 1)
        runs = [await client.start("sample", {})] if before else []
        life = Life(log, AGENT, tmp_path)

        async def ended() -> None:
            await eventually(lambda: _is(bool(life.tenures)))
            run = runs[0] if runs else await client.start("sample", {})
            assert await run.result(timeout=PATIENCE_S) == {"done": True}

        assert await life.live(ended)
        why = "has another record at 1" if before else "ends at 1, and was read to 2"
        assert any(why in line for line in life.said)


async def test_an_inbox_without_what_the_journal_has_accepted_stops_its_partition(
    log: EventLog, tmp_path: Path
) -> None:
    async with asyncio.timeout(PATIENCE_S), Client(log) as client:
        await lived(log, tmp_path, client, again=False)
        cut(log, 0)
        life = Life(log, AGENT, tmp_path)
        why = "ends at 0, and was read to 1"
        assert await life.live(lambda: eventually(lambda: _is(any(why in line for line in life.said))))
        assert not life.tenures


async def test_a_file_is_used_where_the_inbox_is_the_one_that_was_read(log: EventLog, tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), Client(log) as client:
        await lived(log, tmp_path, client, again=True)
        life = Life(log, AGENT, tmp_path)
        assert await life.live(lambda: eventually(lambda: _is(bool(life.tenures))))
        assert not [line for line in life.said if "journal is read from" in line]
