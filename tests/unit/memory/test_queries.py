"""Queries of memory: what they cost does not grow with what is not live any more."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from noesium_stream.memory.fact import Fact
from noesium_stream.memory.fold import MemoryFold
from noesium_stream.memory.item import MemoryFilter
from noesium_stream.memory.queries import live_of_filter, live_of_key
from noesium_stream.memory.store import MemoryStore


def filled(path: Path, history: int) -> MemoryStore:
    """A store in which one of many writes to a key is live, and one summary of many facts."""
    store = MemoryStore(path)

    def change(db: sqlite3.Connection, tick: int) -> None:
        fold = MemoryFold(db, tick)
        names = [f"t{at:06}" for at in range(history)]
        for at, name in enumerate(names):
            fold.apply(Fact(f"k{at}", "user:ada", "tier", at, at, "clerk", f"e{at:06}"))
            fold.apply(Fact(name, "user:ada", f"turn.{at:06}", "said", at, "clerk", f"f{at:06}"))
        one = Fact("s", "user:ada", "turn.000000~1", "all", history, "clerk", "g", stands_for=tuple(names))
        fold.apply(one)

    store.change(change)
    return store


@pytest.mark.parametrize(
    "query",
    [
        lambda store: live_of_key(store, "user:ada", "tier"),
        lambda store: live_of_filter(store, MemoryFilter(prefix="turn."), ["user:ada"]),
        lambda store: live_of_filter(store, MemoryFilter(), ["user:ada"]),
    ],
)
def test_a_query_of_little_that_is_live_costs_the_same_after_a_long_history(
    tmp_path: Path, query: Callable[[MemoryStore], list[Fact]]
) -> None:
    steps = []
    for history in (5, 1_000):
        store = filled(tmp_path / f"{history}.db", history)
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        with store.reading() as db:
            db.set_progress_handler(step, 1)
        assert query(store)
        steps.append(count)
        store.close()
    assert steps[1] <= steps[0] + 50
