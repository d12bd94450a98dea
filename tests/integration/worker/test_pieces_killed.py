"""A provider that is killed in the middle of its answer: its successor begins again, and readers are told."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from noesium_stream import Piece
from noesium_stream.client import Client, Run
from noesium_stream.worker import Worker
from tests.support.backends import Backend
from tests.support.processes import Program
from tests.support.reading import PATIENCE_S, eventually
from tests.support.teller import Relay

pytestmark = pytest.mark.usefixtures("no_piece_lost")


async def read(run: Run, into: list[Piece]) -> None:
    async with aclosing(run.pieces()) as pieces:
        async for piece in pieces:
            into.append(piece)


@pytest.mark.needs("several_processes")
async def test_the_pieces_of_a_killed_provider_are_void_and_the_answer_is_right(
    backend: Backend, tmp_path: Path
) -> None:
    log = await backend.open()
    async with Client(log) as client:
        first = await Program.start("tests.support.teller", backend.url, tmp_path / "first")
        await first.line("ready")
        run = await client.start("teller", {"words": list("abc"), "halt": 2})
        found: list[Piece] = []
        reading = asyncio.create_task(read(run, found))
        await eventually(lambda: len(found) == 2)
        await first.kill()
        second = await Program.start("tests.support.teller", backend.url, tmp_path / "second")
        try:
            await eventually(lambda: len(found) == 4)
            await run.signal("go")
            assert await run.result(timeout=PATIENCE_S) == {"text": "abc"}
            await asyncio.wait_for(reading, PATIENCE_S)
        finally:
            await second.kill()
    assert [(piece.data, piece.restarted) for piece in found] == [
        ("a", False),
        ("b", False),
        ("a", True),
        ("b", False),
        ("c", False),
    ]
    assert found[1].attempt.epoch < found[2].attempt.epoch


@pytest.mark.needs("several_processes")
async def test_a_caller_is_told_that_its_provider_begins_again_and_gets_the_right_answer(
    backend: Backend, tmp_path: Path
) -> None:
    log = await backend.open()
    async with Client(log) as client, Worker(log, [Relay], home=tmp_path / "relay"):
        first = await Program.start("tests.support.teller", backend.url, tmp_path / "first")
        await first.line("ready")
        run = await client.start("relay", {"words": list("abc"), "halt": 2})
        found: list[Piece] = []
        reading = asyncio.create_task(read(run, found))
        await eventually(lambda: len(found) == 2)
        [told] = [info for info in await client.list_runs() if info.agent_type == "teller"]
        await first.kill()
        second = await Program.start("tests.support.teller", backend.url, tmp_path / "second")
        try:
            await eventually(lambda: len(found) == 4)
            await (await client.get_run(told.run_id)).signal("go")
            assert await run.result(timeout=PATIENCE_S) == {"text": "abc"}
            await asyncio.wait_for(reading, PATIENCE_S)
        finally:
            await second.kill()
    assert [piece.data for piece in found] == [
        ["a", False],
        ["b", False],
        ["a", True],
        ["b", False],
        ["c", False],
    ]
    assert not any(piece.restarted for piece in found)
