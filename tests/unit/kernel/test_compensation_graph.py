"""Graphs undo what a run did: durably, as steps of its journal, whoever goes on with it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Run
from noesium_stream.errors import RunFailedError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.testing import Rehearsal
from tests.support import unbooking
from tests.support.effects import journal_of, reached
from tests.support.unbooking import BODIES, GIVEN, Holidays, new_world

NAMES = ["note", "booking", "the run"]
"""What is undone, in this order."""

UNDOING = ["erase", "refund", "letter", "report"]
"""What that does outside, in this order."""

EVENTS = 28
"""What the undoing of a holiday writes, its end included."""


@pytest.fixture(autouse=True)
def world() -> None:
    new_world()


@asynccontextmanager
async def deciding(run: Run) -> AsyncIterator[None]:
    """Somebody says of what waits that it was done, if the world says so; else has it done again."""

    async def decide() -> None:
        seen = 0
        while True:
            seen += 1
            outcome = await reached(run, "effect.outcome.unknown", seen)
            effect_id = outcome.payload["effect_id"]
            (open_,) = [one for one in await run.open_effects() if one.effect_id == effect_id]
            count = unbooking.WORLD.calls[open_.name]
            if count:
                await run.resolve_effect(effect_id, "result", f"{open_.name} {count}")
            else:
                await run.resolve_effect(effect_id, "retry")

    decider = asyncio.create_task(decide())
    try:
        yield
    finally:
        decider.cancel()
        await asyncio.gather(decider, return_exceptions=True)


async def fails(run: Run) -> list[EventEnvelope]:
    """Wait for the run's end; its journal, checked: whole, and each event once."""
    with pytest.raises(RunFailedError, match="no trains today"):
        await run.result(timeout=20)
    events, numbers = await journal_of(run)
    assert numbers == list(range(len(numbers)))
    keys = [event.idempotency_key or event.event_id for event in events]
    assert len(set(keys)) == len(keys)
    return events


def undone(events: list[EventEnvelope]) -> list[tuple[str, str]]:
    return [(one["name"], one["outcome"]) for one in events[-1].payload["compensated"]]


def completed(events: list[EventEnvelope]) -> Counter[str]:
    """Nodes of graphs that undo, as often as the log says that they are done."""
    done = [event.payload for event in events if event.event_type == "kernel.node.completed"]
    return Counter(payload["node"] for payload in done if "undo:" in payload["task_path"])


async def test_graphs_undo_an_effect_a_node_and_the_run_and_their_nodes_are_steps_of_its_journal() -> None:
    async with Rehearsal(Holidays) as rehearsal:
        run = await rehearsal.start({"place": "Rome"})
        events = await fails(run)
    assert undone(events) == [(name, "completed") for name in NAMES]
    assert unbooking.WORLD.log == ["booking", *UNDOING]
    assert completed(events) == dict.fromkeys(
        ["erase", "refund", "apologise", "polite", "close", "report"], 1
    )
    assert GIVEN["refund"] == {"name": "booking", "result": "booking 1", "args": ["booking"], "kwargs": {}}
    assert GIVEN["erase"] == {"name": "note", "result": {"noted": "booking 1"}, "args": [], "kwargs": {}}
    assert GIVEN["report"] == {
        "input": {"place": "Rome"},
        "cause": "failed",
        "error_type": "LookupError",
        "message": "no trains today",
    }
    begun = next(i for i, event in enumerate(events) if event.event_type == "run.compensation.started")
    assert len(events) - begun == EVENTS, "each of them is a place to die at"


def nth_of_compensation(nth: int) -> Callable[[EventEnvelope], bool]:
    """Picks the `nth` event of a run's compensation, from `run.compensation.started` on."""
    seen: list[str] = []

    def when(event: EventEnvelope) -> bool:
        if not seen and event.event_type != "run.compensation.started":
            return False
        if event.event_id not in seen:
            seen.append(event.event_id)
        return len(seen) == nth

    return when


async def dies_at(nth: int, *, reaches_log: bool, log: str = "memory://") -> list[EventEnvelope]:
    """The journal of a run whose process has died at the `nth` event of its compensation, checked."""
    async with Rehearsal(Holidays, log=log) as rehearsal:
        rehearsal.crash_when(nth_of_compensation(nth), reaches_log=reaches_log)
        started = await rehearsal.start({"place": "Rome"})
        run = await rehearsal.client.run(started.id)
        async with deciding(run):
            events = await fails(run)
        await rehearsal.crashed()
        assert rehearsal.crashes == 1
    return events


def check_undone(events: list[EventEnvelope]) -> None:
    """All is undone once, in order, each call under one key; what was done is not done again."""
    assert undone(events) == [(name, "completed") for name in NAMES]
    world = unbooking.WORLD
    assert list(dict.fromkeys(world.log)) == ["booking", *UNDOING]
    assert [len(world.keys[name]) for name in UNDOING] == [1, 1, 1, 1], "a crash does not change the key"
    assert world.calls["refund"] == 1, "it is external"
    assert sum(world.calls[name] for name in UNDOING) <= 5, "only the call that was cut off is made again"
    assert set(completed(events).values()) == {1}
    # A body that was cut off runs again, and those that have it within: no other one.
    again = {name for name in BODIES if BODIES[name] > 1}
    assert len(again) <= 1 and max(BODIES.values()) <= 2, BODIES
    assert BODIES["book"] == 1, "the run's own graph is not executed any more"


@pytest.mark.parametrize("nth", range(1, EVENTS + 1))
@pytest.mark.parametrize("reaches_log", [False, True], ids=["before", "after"])
async def test_a_death_at_any_event_of_a_compensation_repeats_nothing_that_is_done(
    nth: int, reaches_log: bool
) -> None:
    events = await dies_at(nth, reaches_log=reaches_log)
    check_undone(events)
