"""A call goes to the provider that was recorded with it, whatever the registry says by then."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from noesium_stream import AgentRef, CapabilityRegistry, Client, open_log
from noesium_stream.kernel import current_step
from tests.support.delegating import State, caller, events_of, offer, provider, replayed, working


async def one(state: State) -> dict[str, Any]:
    return {"value": 1}


async def call(state: State) -> dict[str, Any]:
    return {"value": (await current_step().invoke("sum.up", {"n": 1}))["value"]}


async def test_a_replay_takes_the_recorded_choice_and_runs_are_spread(tmp_path: Path) -> None:
    log = await open_log("memory://")
    agents = [provider(name, one, offer()) for name in ("left", "right")]
    calls = caller(call)
    async with working(log, tmp_path, calls, *agents), Client(log) as client:
        runs = [await client.start("caller", {"n": 1}) for _ in range(20)]
        for run in runs:
            assert (await run.result())["value"] == 1
        chosen: Counter[str] = Counter()
        for run in runs:
            [invoked] = await events_of(run, "capability.invoked")
            chosen[invoked.payload["target_agent_id"]] += 1
        assert set(chosen) == {"left", "right"}
        registry = CapabilityRegistry(log)
        for name in ("left", "right"):
            await registry.deprecate(AgentRef(name, name), "sum.up", "1.0.0", "old")
        await registry.register(AgentRef("new", "new"), offer(priority=9))
        for run in runs[:3]:
            said = await replayed(run, calls, log)
            assert said == "", said
    await log.close()
