"""The compactor on a log: until nothing is left, through crashes, within its caller's session."""

from __future__ import annotations

from typing import Any

import pytest

from agents.compactor import AGENT, Compactor
from noesium_stream.agent import load_agent
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError
from noesium_stream.memory import MemoryFilter
from noesium_stream.testing import Rehearsal, ScriptedModel

INPUT = {"scope": "user:ada", "prefix": "turn.", "keep": 3, "size": 4}


async def fill(rehearsal: Rehearsal, count: int) -> Any:
    memory = rehearsal.client.memory("user:ada")
    for at in range(count):
        await memory.write(f"turn.{at:04}", f"said {at}")
    return memory


def test_the_module_exports_its_agent() -> None:
    assert load_agent("agents.compactor") is AGENT is Compactor


@pytest.mark.parametrize("crash", [None, "memory.written", "effect.completed", "kernel.node.completed"])
async def test_it_sums_up_until_nothing_is_left_each_part_once_also_through_a_crash(
    crash: str | None,
) -> None:
    async with Rehearsal(Compactor) as rehearsal:
        memory = await fill(rehearsal, 60)
        if crash is not None:
            rehearsal.crash_before(crash, 2)
        run = await rehearsal.start(INPUT)
        result = await run.result()
        assert result["complete"]
        items = await memory.query(MemoryFilter(prefix="turn.", limit=1_000))
        written = [event for event in await run.history() if event.event_type == "memory.written"]
        handle = await rehearsal.client.get_run(run.id)
        assert (await verify(handle, agent_target(Compactor, rehearsal.log))).difference is None
    assert len(written) == result["summaries"]
    parts = [part for event in written for part in event.payload["stands_for"]]
    assert len(parts) == len(set(parts)) == result["parts"]
    assert sum((item.metadata or {}).get("count", 1) for item in items) == 60


async def test_a_model_writes_the_summaries_if_there_is_one() -> None:
    model = ScriptedModel(lambda prompt: "They talked.")
    async with Rehearsal(Compactor, model=model) as rehearsal:
        memory = await fill(rehearsal, 8)
        await (await rehearsal.start(INPUT)).result()
        assert await memory.recall("turn.0000~1") == "They talked."
    assert len(model.prompts) == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"scope": ""},
        {"scope": "agent:other"},
        {"scope": "nowhere"},
        {"prefix": ""},
        {"size": 1},
        {"keep": True},
    ],
)
async def test_an_impossible_input_fails_the_run_and_writes_nothing(bad: dict[str, Any]) -> None:
    async with Rehearsal(Compactor) as rehearsal:
        run = await rehearsal.start({**INPUT, **bad})
        with pytest.raises(RunFailedError):
            await run.result()
        assert not [event for event in await run.history() if event.event_type == "memory.written"]
