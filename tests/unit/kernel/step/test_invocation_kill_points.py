"""Every way in which a call can end, over a commit that fails: each is recorded once, and the run goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
from noesium_stream.client.operate.fork import dry_fork
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import CapabilityError, CommitUnknownError, DeadlineExceededError
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from tests.support.delegating import PURE, State, caller, events_of, offer, provider, replayed, types, working
from tests.support.failing import FailingLog
from tests.support.reading import PATIENCE_S

COMMITS = 24
"""More than the runs of the test need."""

ENDS = {
    "capability.requested": 5,
    "capability.completed": 3,
    "capability.refused": 1,
    "capability.unresolved": 1,
    "capability.expired": 1,
    "run.completed": 1,
}


async def fail(state: State) -> dict[str, Any]:
    raise ValueError("no paper")


async def double(state: State) -> dict[str, Any]:
    return {"value": 2 * state["n"]}


async def every_end(state: State) -> dict[str, Any]:
    step, found = current_step(), []
    for id, arguments, options in (
        ("sum.up", {"n": "four"}, {}),
        ("no.such", {"n": 4}, {"on_unresolved": "fail"}),
        ("sum.up", {"n": 4}, {}),
        ("sleep.on", {"n": 4}, {"deadline": 0.02}),
        ("break.down", {"n": 4}, {}),
    ):
        try:
            found.append((await step.invoke(id, arguments, **options))["value"])
        except (CapabilityError, DeadlineExceededError) as error:
            found.append(type(error).__name__)
    return {"value": found}


EXPECTED = [
    "CapabilityInputError",
    "CapabilityNotFoundError",
    8,
    "DeadlineExceededError",
    "CapabilityError",
]

AGENTS = (
    provider("first", fail, offer(priority=5, **PURE), offer("break.down")),
    provider("second", double, offer(**PURE)),
    caller(every_end),
)


@pytest.mark.parametrize("reaches_log", [True, False])
@pytest.mark.parametrize("at", range(1, COMMITS + 1))
async def test_a_run_survives_a_commit_that_fails_in_any_of_its_calls(
    tmp_path: Path, at: int, reaches_log: bool
) -> None:
    inner = await open_log("memory://")
    async with working(inner, tmp_path / "0", provider("absent", double, offer("sleep.on"))):
        pass
    failing = FailingLog(
        inner, lambda count, _: count == at, CommitUnknownError("told to"), reaches_log=reaches_log
    )
    log: EventLog = failing  # type: ignore[assignment]
    async with working(log, tmp_path / "1", *AGENTS), Client(log) as client:
        run = await client.start("caller", {})
        assert await run.result(timeout=PATIENCE_S) == {"value": EXPECTED}
        counts = Counter(types(await events_of(run)))
        assert {kind: counts[kind] for kind in ENDS} == ENDS
        assert 3 <= counts["capability.invoked"] <= 4, "a deadline may pass before anybody is called"
        assert await replayed(run, AGENTS[2], log) == ""
    assert failing.commits < COMMITS
    await inner.close()


async def test_a_dry_fork_reuses_every_end_and_calls_nobody(tmp_path: Path) -> None:
    log = await open_log("memory://")
    async with working(log, tmp_path / "0", provider("absent", double, offer("sleep.on"))):
        pass
    async with working(log, tmp_path / "1", *AGENTS), Client(log) as client:
        run = await client.start("caller", {})
        assert await run.result(timeout=PATIENCE_S) == {"value": EXPECTED}
        found = await dry_fork(run, 0, {}, agent_target(AGENTS[2], log))
        assert (found.outcome, found.result) == ("completed", {"value": EXPECTED})
        assert [step.calls for step in found.steps] == [[]]
        assert len(found.steps[0].reused) == 5
    await log.close()
