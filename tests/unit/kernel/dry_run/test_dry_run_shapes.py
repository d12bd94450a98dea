"""A dry run of a graph with parallel nodes, subgraphs, sends, loops, calls and events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from noesium_stream.event.standard import ForkRef
from noesium_stream.kernel.dry_run.dry_run import DryRun, dry_run
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.verify.verifier import ReplayTarget
from tests.support.random_graphs import Noted, Plan, build, done
from tests.support.replays import REF, recorded

PLAN = Plan((("effect", "send", "gather"), ("subgraph", "command"), ("event", "sync", "pure")), 2)


async def nothing() -> None:
    """There is no agent to prepare."""


async def tried(run: RecordedRun, at: int) -> DryRun:
    ref = ForkRef(run_id=run.run_id, step=at)
    return await dry_run(ReplayTarget(build(PLAN).compile(), REF), run, ref, nothing)


@pytest.mark.parametrize("at", [0, 2, 5])
async def test_without_other_values_it_ends_as_the_run_did_and_calls_nothing(tmp_path: Path, at: int) -> None:
    run = await recorded(build(PLAN), tmp_path, events=[Noted], seed=7, trace=[], total=0)
    assert run.terminal is not None
    done.clear()
    found = await tried(run, at)
    assert (found.outcome, found.error, found.result) == ("completed", None, run.terminal.payload["result"])
    assert not done
    assert [step for step in found.steps if step.calls] == []


async def test_where_nothing_is_recorded_each_branch_stops_at_its_effects(tmp_path: Path) -> None:
    run = await recorded(build(PLAN), tmp_path, events=[Noted], seed=7, trace=[], total=0)
    events = tuple(item for item in run.events if not item.event.event_type.startswith("effect."))
    done.clear()
    found = await tried(replace(run, events=events), 0)
    assert found.outcome == "stopped"
    stopped = {step.node: len(step.calls) for step in found.steps if step.outcome == "open"}
    assert stopped == {"n0_0": 1, "n0_2": 3}
    assert [step.node for step in found.steps if step.outcome == "completed"] == ["gate0", "n0_1_fan"]
    assert not done
