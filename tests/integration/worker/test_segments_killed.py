"""A worker that is killed where a segment begins: on each log the next one goes on as if nothing was."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.kernel.segment_state import STARTED
from tests.support.backends import Backend
from tests.support.processes import Program
from tests.support.reading import PATIENCE_S
from tests.support.talks import Talker

WORDS = [f"m{number}" for number in range(7)]


@pytest.mark.needs("several_processes")
@pytest.mark.parametrize("point", [f"before:{STARTED}", f"after:{STARTED}"])
async def test_a_killed_worker_begins_each_segment_once(backend: Backend, tmp_path: Path, point: str) -> None:
    """The process dies at the second beginning."""
    log = await backend.open()
    async with Client(log) as client:
        first = await Program.start("tests.support.talks_worker", backend.url, tmp_path / "1", point)
        await first.line("at work")
        run = await client.start("talker", {})
        for word in [*WORDS, "bye"]:
            await run.signal("message", word)
        await first.ended_by_signal()
        second = await Program.start("tests.support.talks_worker", backend.url, tmp_path / "2")
        try:
            result = await run.result(timeout=PATIENCE_S)
        finally:
            await second.kill()
        expected = [f"{number}: {word}".upper() for number, word in enumerate([*WORDS, "bye"], 1)]
        assert result == {"answers": expected}
        events = [event async for event in run.events(follow=False)]
        segments = [event.payload for event in events if event.event_type == STARTED]
        assert [(one["segment"], one["step"]) for one in segments] == [(2, 5), (3, 9), (4, 13)]
        done = [e.payload["step"] for e in events if e.event_type == "kernel.node.completed"]
        assert done == list(range(1, 17))
        requested = [e.payload["effect_id"] for e in events if e.event_type == "effect.requested"]
        assert len(requested) == len(set(requested)) == 8
        assert (await verify(run, agent_target(Talker, log))).difference is None
