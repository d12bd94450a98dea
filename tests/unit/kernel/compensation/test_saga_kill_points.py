"""The kernel alone undoes a run by graphs, killed around every commit: nothing finished is repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.agent import AgentContext
from noesium_stream.agent.base import NoOptions
from noesium_stream.clock import SystemClock
from noesium_stream.errors import CommitUnknownError, KernelError
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.rules.effect_ledger import undecided
from noesium_stream.event.standard import CompensationStarted, EffectResolved, RunStarted
from noesium_stream.kernel import DurableGraph, graph_ref
from noesium_stream.kernel.compensation.saga import Compensation
from tests.support import unbooking
from tests.support.journal import RUN_ID, ListJournal
from tests.support.unbooking import BODIES, Holidays, new_world

COMMITS = 40
"""More than a run that fails and is undone needs."""


class AskedJournal(ListJournal):
    """Somebody says of what waits that it was done, if the world says so; else has it done again."""

    async def until(self, ready: Callable[[], bool], deadline_ms: int | None = None) -> None:
        await self.commit()
        for outcome in list(undecided(self.history)):
            name = self.history.requested[outcome.payload["effect_id"]].payload["name"]
            count = unbooking.WORLD.calls[name]
            decided = EffectResolved(
                run_id=RUN_ID,
                effect_id=outcome.payload["effect_id"],
                decision="result" if count else "retry",
                result=f"{name} {count}" if count else None,
                resolved_by="Ada",
                outcome_id=outcome.event_id,
            )
            self.stage(decided, trace=self.identity.trace, causation_id=outcome.event_id)
        await super().until(ready, deadline_ms)


def holidays() -> Holidays:
    log: Any = None
    clock = SystemClock()
    return Holidays(NoOptions(), AgentContext(Path(), log, clock, AgentRef("x", "holidays"), print))


async def fail_and_undo(journal: ListJournal) -> list[str]:
    """Run and undo it, from wherever its journal is; the outcomes of what undoes it."""
    agent, trace = holidays(), journal.identity.trace
    if journal.history.started is None:
        started = RunStarted(
            run_id=RUN_ID,
            agent_type="holidays",
            agent_version="1",
            graph=graph_ref(agent.graph, "holidays", "1"),
            on_failure=agent.declared_on_failure,
        )
        journal.stage(started, trace=trace, causation_id=None)
    if journal.history.compensation is None:
        with pytest.raises((LookupError, KernelError), match="no trains today"):
            await DurableGraph(agent.graph).execute(journal, {})
        why = CompensationStarted(
            run_id=RUN_ID, cause="failed", error_type="LookupError", message="no trains today"
        )
        journal.stage(why, trace=trace, causation_id=journal.history.last_event_id)
    return [one.outcome for one in await Compensation(journal, agent, agent.versions.reaches, {}).run()]


async def killed(at: int, *, reaches_log: bool) -> tuple[list[EventEnvelope], int]:
    """The journal of a run that died at its commit number `at`, and how often it did."""
    new_world()
    log: list[EventEnvelope] = []
    deaths = 0
    try:
        outcomes = await fail_and_undo(journal := AskedJournal(log, dies_at=at, reaches_log=reaches_log))
        await journal.commit()
    except CommitUnknownError:
        deaths = 1
        outcomes = await fail_and_undo(journal := AskedJournal(log))
        await journal.commit()
    assert outcomes == ["completed"] * 3
    return log, deaths


@pytest.mark.parametrize("at", range(1, COMMITS + 1))
@pytest.mark.parametrize("reaches_log", [False, True], ids=["before", "after"])
async def test_undoing_by_graphs_survives_a_death_at_any_commit(at: int, reaches_log: bool) -> None:
    log, deaths = await killed(at, reaches_log=reaches_log)
    world = unbooking.WORLD
    names = ["booking", "erase", "refund", "letter", "report"]
    assert list(dict.fromkeys(world.log)) == names
    assert [len(world.keys[name]) for name in names] == [1] * 5, "a death does not change the key"
    assert world.calls["refund"] == 1, "it is external"
    assert sum(world.calls.values()) <= 5 + deaths
    done = Counter(
        (event.payload["step"], event.payload["task_path"])
        for event in log
        if event.event_type == "kernel.node.completed"
    )
    assert len(done) == 8
    assert set(done.values()) == {1}
    again = [name for name in BODIES if BODIES[name] > 1]
    assert len(again) <= deaths


async def test_the_number_of_commits_covers_the_whole_run() -> None:
    assert (await killed(COMMITS, reaches_log=False))[1] == 0
    assert (await killed(10, reaches_log=False))[1] == 1
