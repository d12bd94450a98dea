"""A worker killed on a real Kafka around what a run writes: right end, each effect as its class says.

The run is `tests/support/trip.py`, and some of its events are the kill points. The deaths are those of
`Rehearsal`, within this process; on SQLite, a process dies at every append in `test_kill_points_sigkill.py`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.errors import RunFailedError
from noesium_stream.testing import Rehearsal
from noesium_stream.testing.rehearsal import RehearsedRun
from tests.support.kafka import KafkaServer
from tests.support.reading import PATIENCE_S
from tests.support.striking import strike_at
from tests.support.trip import BOOKED, NIGHTS, done, trip


async def travel(rehearsal: Rehearsal, *, refuse: bool) -> dict[str, Any]:
    """The run's end: its final state, or what became of it."""
    run = await rehearsal.start({"refuse": refuse, "booked": []})
    await run.answer("yes")
    deciding = asyncio.create_task(decide(run))
    try:
        result = await run.result(timeout=PATIENCE_S)
        return {**result, "booked": sorted(result["booked"]), "status": "completed"}
    except RunFailedError as error:
        [failed] = [e for e in await run.history() if e.event_type == "run.failed"]
        undone = [one["outcome"] for one in failed.payload["compensated"]]
        return {"status": "failed", "error": str(error), "compensated": undone}
    finally:
        deciding.cancel()


async def decide(run: RehearsedRun) -> None:
    """Say what became of the letter where the worker died between sending it and saying so."""
    unknown = await run.wait_for("effect.outcome.unknown")
    sent = any(name == "letter" for name, _ in done)
    await run.resolve_effect(
        unknown.payload["effect_id"], "result" if sent else "retry", "posted" if sent else None
    )


async def check(rehearsal: Rehearsal, *, refuse: bool, deaths: int) -> None:
    end = await travel(rehearsal, refuse=refuse)
    if refuse:
        assert end["status"] == "failed"
        assert "the card is refused" in end["error"]
        assert end["compensated"] == ["completed"] * (1 + len(NIGHTS))
    else:
        assert end == {
            "status": "completed",
            "refuse": False,
            "booked": BOOKED,
            "verdict": "yes",
            "letter": "posted",
            "paid": "paid",
        }
    # Cut between call and record, an idempotent effect is done again under its key: once per death at most.
    assert max(done.values()) <= 1 + deaths
    assert sum(done.values()) - len(done) <= deaths * 7, "all that ran at once may have been cut"
    keys = {name: len({key for one, key in done if one == name}) for name, _ in done}
    assert keys["book"] == 1 + len(NIGHTS) + 2
    assert keys["try"] == 3
    assert keys["pay"] == 1
    assert sum(times for (name, _), times in done.items() if name == "letter") == 1, "it goes out once"
    assert keys.get("cancel", 0) == (1 + len(NIGHTS) if refuse else 0)
    for run in await rehearsal.client.list_runs():
        handle = await rehearsal.client.get_run(run.run_id)
        events = [event async for event in handle.events(follow=False)]
        finished = [
            (e.payload["step"], e.payload["task_path"])
            for e in events
            if e.event_type == "kernel.node.completed"
        ]
        assert len(finished) == len(set(finished)), "no step is done twice"


@pytest.mark.parametrize("refuse", [False, True], ids=["goes", "is-compensated"])
@pytest.mark.parametrize("number", [3, 17, 29, 41, 52])
async def test_a_death_at_an_event_changes_nothing_on_kafka(
    kafka: KafkaServer, namespace: str, refuse: bool, number: int
) -> None:
    done.clear()
    url = f"{kafka.url(namespace)}&partitions=1"
    async with Rehearsal(trip(), log=url, clock=SystemClock()) as rehearsal:
        strike_at(rehearsal, number, reaches_log=bool(number % 2))
        await check(rehearsal, refuse=refuse, deaths=1)
        assert rehearsal.crashes == 1
