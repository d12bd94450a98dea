"""Random graphs, random deaths: the final state and the canonical history are those of an undisturbed run."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noesium_stream.errors import CommitUnknownError
from noesium_stream.kernel import Durability, DurableGraph
from tests.support import random_graphs
from tests.support.journal import ListJournal
from tests.support.random_graphs import Plan, build, done, plans

GIVEN: dict[str, Any] = {"seed": 7, "trace": [], "total": 0}
CONFIG: Any = {"recursion_limit": 500}


def canonical(journal: ListJournal) -> list[tuple[Any, ...]]:
    """What the run did, by step, without what no two runs share; deaths leave no trace in it."""
    found = {
        (event.idempotency_key or f"{event.event_type} {event.payload.get('effect_id')}"): (
            event.event_type,
            event.payload.get("node"),
            json.dumps(event.payload.get("delta", event.payload.get("result")), sort_keys=True),
        )
        for event in journal.log
    }
    return sorted((key, *rest) for key, rest in found.items())


async def execute(plan: Plan, journal: ListJournal, **options: Any) -> Any:
    return await DurableGraph(build(plan).compile(), **options).execute(journal, GIVEN, CONFIG)


@settings(max_examples=40, deadline=None)
@given(
    plan=plans,
    deaths=st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=4),
    durability=st.sampled_from(Durability),
    walk_steps=st.sampled_from([1, 100]),
    turns=st.permutations([0, 1, 2]),
)
def test_a_run_that_dies_ends_as_one_that_does_not(
    plan: Plan, deaths: list[tuple[int, bool]], durability: Durability, walk_steps: int, turns: list[int]
) -> None:
    async def scenario() -> None:
        options: dict[str, Any] = {"durability": durability, "walk_steps": walk_steps}
        random_graphs.order[:] = [0, 1, 2]
        done.clear()
        whole = ListJournal()
        expected = await execute(plan, whole, **options)
        await whole.commit()
        assert set(done.values()) <= {1}
        assert expected == await _walked(plan)
        keys = set(done)
        done.clear()
        random_graphs.order[:] = turns
        log: list[Any] = []
        for dies_at, reaches_log in deaths:
            dying = ListJournal(log, dies_at=dies_at, reaches_log=reaches_log)
            try:
                await execute(plan, dying, **options)
                await dying.commit()
            except CommitUnknownError:
                continue
        last = ListJournal(log)
        assert await execute(plan, last, **options) == expected
        await last.commit()
        assert canonical(last) == canonical(whole)
        assert set(done) == keys, "under the same idempotency keys"
        assert max(done.values(), default=1) <= 1 + len(deaths)

    asyncio.run(scenario())


async def _walked(plan: Plan) -> Any:
    """A finished run executed once more, over its recorded deltas alone."""
    journal = ListJournal()
    await execute(plan, journal)
    await journal.commit()
    return await execute(plan, ListJournal(journal.log))


PLAN = Plan((("effect", "send", "gather"), ("subgraph", "command"), ("event", "sync", "pure")), 2)

DIGEST = """
import asyncio, sys
from tests.property.test_random_graphs import PLAN, digest
print(digest(PLAN, [int(n) for n in sys.argv[1:]]))
"""


def digest(plan: Plan, turns: list[int]) -> str:
    """Hash of the final state and the canonical history."""

    async def scenario() -> str:
        random_graphs.order[:] = turns
        journal = ListJournal()
        final = await execute(plan, journal)
        await journal.commit()
        text = json.dumps([final, canonical(journal)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    return asyncio.run(scenario())


@pytest.mark.parametrize("turns", [["0", "1", "2"], ["2", "1", "0"]])
def test_history_is_the_same_under_every_hash_seed_and_order_of_children(turns: list[str]) -> None:
    found = set()
    for seed in ("0", "1", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": "."}
        command = [sys.executable, "-c", DIGEST, *turns]
        run = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=600)
        assert run.returncode == 0, run.stderr
        found.add(run.stdout)
    found.add(digest(PLAN, [1, 0, 2]) + "\n")
    assert len(found) == 1
