"""A run whose workers are killed or paused while it is stopped, sleeps, or waits for what a call reports.

Several are played at the same time, each on one log, and on both with `-m "soak or not soak"`: what they cost
is waiting, for sessions to end. What is killed while much is under way, and at more instants:
`test_points.py`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from noesium_stream.errors import DeadlineExceededError, RunCancelledError
from tests.chaos.one_run import PATIENCE_S, OneRun, time_is
from tests.chaos.play import folder_for
from tests.chaos.plays import Played, Plays, play_all
from tests.sim.world import result_of
from tests.support.chosen import chosen, on_a_log_in_turn
from tests.support.kafka import KafkaServer
from tests.support.processes import stop

pytestmark = pytest.mark.timeout(3_600)

PLAYS: Final = Plays()
play = PLAYS.play


# -- a run that sleeps ---------------------------------------------------------------------------------------


@play("killed, and nobody is there when the time comes", "after:timer.started", 4.0)
@play("killed before it is recorded that the time has come", "before:timer.fired", 4.0)
@play("killed with it recorded that the time has come", "after:timer.fired", 4.0)
@play("killed twice while the run sleeps", "asleep", 13.0)
async def sleeps(one: OneRun, when: str, for_s: float) -> None:
    victim = await one.start("victim", when if ":" in when else None)
    await one.owners(1)
    at_s = time.time() + for_s
    run = await one.ask([["until", round(at_s * 1000)], ["external", "woke"]])
    await one.seen(run, "timer.started")
    if ":" in when:
        await one.stands(victim)
    if when.endswith("timer.fired"):
        assert time.time() >= at_s
    await one.kill(victim)
    if when == "asleep":
        second = await one.start("second")
        await one.owners(2)
        await one.kill(second)
    elif when == "after:timer.started":
        await time_is(at_s + 0.5)
    assert one.calls() == []
    await one.start("next")
    assert await run.result(timeout=PATIENCE_S) == {"got": ["slept", result_of("external", "woke")]}
    [call] = one.calls()
    assert call.process == "next"
    assert call.begun_s >= at_s, "it woke early"
    events = [event async for event in run.events(follow=False)]
    types = Counter(event.event_type for event in events)
    assert types["timer.started"] == types["timer.fired"] == 1
    [fired] = [event for event in events if event.event_type == "timer.fired"]
    assert fired.timestamp_ms >= round(at_s * 1000)


# -- a run that is stopped -----------------------------------------------------------------------------------

HEARD, BEGUN, ENDED = "run.cancel.requested", "run.compensation.started", "run.cancelled"


@play("a run is cancelled that nobody has", "cancel", None)
@play("killed with the request heard", "cancel", f"before:{HEARD}")
@play("killed with the request recorded", "cancel", f"after:{HEARD}")
@play("killed with the run's undoing begun", "cancel", f"after:{BEGUN}")
@play("killed with that undone that can be done again", "cancel", "after-effect", 3)
@play("killed while undoing what cannot be done again", "cancel", "during-effect", 4)
@play("killed with that undone that cannot be done again", "cancel", "after-effect", 4)
@play("killed with the end recorded and nobody told", "cancel", f"after:{ENDED}")
@play("a deadline passes while nobody has the run", "deadline", None)
@play("killed with the deadline recorded", "deadline", "after:run.deadline.passed")
@play("killed by the deadline with all undone", "deadline", "after-effect", 4)
async def stopped(one: OneRun, how: str, point: str | None, number: int = 1) -> None:
    """Two things are booked, one that can be booked (and undone) again under its key, and one that cannot."""
    victim = await one.start("victim", point, number)
    await one.owners(1)
    deadline = one.deadline if how == "deadline" else None
    run = await one.ask([["undoable", "room"], ["repeatable", "car"], ["signal", "go"]], deadline)
    until_s = time.time() + one.deadline.total_seconds()
    await one.seen(run, "kernel.node.entered", 3)
    if point is None:
        await one.kill(victim)
    if how == "cancel":
        await run.cancel("rain")
    if point is None:
        await time_is(until_s if how == "deadline" else 0)
    else:
        await one.stands(victim)
        await one.kill(victim)
    on_log = await one.types(run)
    assert on_log[ENDED] + on_log["run.failed"] == (point == f"after:{ENDED}")
    assert on_log["effect.completed"] == 2 + UNDONE_AT[point, number]
    has_begun = point == f"after:{BEGUN}" or UNDONE_AT[point, number] > 0 or number == 3
    if point != "after:run.deadline.passed":  # one commit may have it and the beginning of the undoing
        assert bool(on_log[BEGUN]) == has_begun
    assert on_log[HEARD] == (how == "cancel" and point not in (None, f"before:{HEARD}"))
    await one.start("next")
    await one.owners(2)
    async with one.person(run) as decided:
        with pytest.raises(RunCancelledError if how == "cancel" else DeadlineExceededError) as raised:
            await run.result(timeout=PATIENCE_S)
    assert how == "deadline" or "rain" in str(raised.value)

    # Both are undone, the last first, each once: the outside tells what is done again by its key.
    undone = [call for call in one.calls("undo") if call.outcome == "done"]
    assert list(dict.fromkeys((call.words, call.key) for call in undone)) == [
        ("car", undone[0].key),
        ("room", undone[-1].key),
    ]
    calls = [(call.words, call.outcome) for call in one.calls("undo")]
    again = {("after-effect", 3): [("car", "done")], ("during-effect", 4): [("room", None)]}
    assert sorted(calls, key=str) == sorted(
        [("car", "done"), ("room", "done"), *again.get((point, number), [])], key=str
    )
    assert decided == DECIDED.get((point, number), [])
    types = await one.types(run)
    assert types[HEARD] == types[ENDED] == (how == "cancel")
    assert types["run.deadline.passed"] == types["run.failed"] == (how == "deadline")
    assert types[BEGUN] == 1
    [*_, end] = [event async for event in run.events(follow=False)]
    assert [part["outcome"] for part in end.payload["compensated"]] == ["completed", "completed"]


UNDONE_AT: Final = Counter({("during-effect", 4): 1, ("after-effect", 4): 1, (f"after:{ENDED}", 1): 2})
"""How much of the undoing is on the log when the process stands still."""

DECIDED: Final[dict[tuple[str | None, int], list[str]]] = {
    ("during-effect", 4): ["retry"],
    ("after-effect", 4): ["result"],
}
"""What a person says of the one that was cut and cannot be done again."""


@play("paused past its session and the run's deadline")
async def overslept(one: OneRun) -> None:
    paused = await one.start("paused")
    await one.owners(1)
    run = await one.ask([["undoable", "room"], ["signal", "go"]], one.deadline)
    await one.seen(run, "kernel.node.entered", 2)
    await stop(paused.pid, one.url)
    next_one = await one.start("next")
    await one.owners(2)
    with pytest.raises(DeadlineExceededError):
        await run.result(timeout=PATIENCE_S)
    before = await one.types(run)
    paused.signal(signal.SIGCONT)
    # It is a member like any other again when it takes the partition over from the next one.
    await one.kill(next_one)
    later = await one.ask([["external", "after"]])
    assert await later.result(timeout=PATIENCE_S) == {"got": [result_of("external", "after")]}
    assert await one.types(run) == before
    assert [(call.words, call.process) for call in one.calls("undo")] == [("room", "next")]


# -- a call that outlasts its owner --------------------------------------------------------------------------


@play("paused in a call, which reports in time", ["timed", "pay", 60])
@play("paused in a call without a timeout, which reports", ["external", "pay"])
async def reports(one: OneRun, order: list[object]) -> None:
    paused = await one.start("paused", "during-effect")
    run = await one.ask([order])
    await one.stands(paused)
    await one.start("next")
    await one.owners(2)
    if order[0] == "external":
        await one.seen(run, "effect.outcome.unknown")
    assert (await one.types(run))["effect.completed"] == 0
    paused.signal(signal.SIGCONT)
    assert await run.result(timeout=PATIENCE_S) == {"got": [result_of("external", "pay")]}
    assert [(call.process, call.outcome) for call in one.calls()] == [("paused", "done")]
    types = await one.types(run)
    assert types["effect.reported"] == types["effect.requested"] == types["effect.completed"] == 1
    assert types["effect.outcome.unknown"] == (order[0] == "external")
    assert types["effect.resolved"] == 0


@play("killed with what a call has reported heard", "before:effect.reported")
@play("killed with what a call has reported recorded", "after:effect.reported")
async def reports_to_one_that_dies(one: OneRun, point: str) -> None:
    paused = await one.start("paused", "during-effect")
    run = await one.ask([["timed", "pay", 60]])
    await one.stands(paused)
    victim = await one.start("victim", point)
    await one.owners(2)
    paused.signal(signal.SIGCONT)
    await one.stands(victim)
    # Who has called is away: what came of it is on the log alone.
    await one.kill(paused)
    await one.kill(victim)
    await one.start("next")
    assert await run.result(timeout=PATIENCE_S) == {"got": [result_of("external", "pay")]}
    assert [(call.process, call.outcome) for call in one.calls()] == [("paused", "done")]
    types = await one.types(run)
    assert types["effect.reported"] == types["effect.requested"] == types["effect.completed"] == 1
    assert types["effect.outcome.unknown"] == types["effect.resolved"] == 0


@play("killed in a call, which never reports")
async def never_reports(one: OneRun) -> None:
    victim = await one.start("victim", "during-effect")
    run = await one.ask([["timed", "pay", 6]])
    await one.stands(victim)
    await one.kill(victim)
    requested = await one.seen(run, "effect.requested")
    await one.start("next")
    async with one.person(run) as decided:
        assert await run.result(timeout=PATIENCE_S) == {"got": [result_of("external", "pay")]}
    assert decided == ["retry"]
    unknown = await one.seen(run, "effect.outcome.unknown")
    assert unknown.timestamp_ms >= requested.payload["deadline_ms"], "it is waited for until then"
    assert [(call.process, call.outcome) for call in one.calls()] == [("victim", None), ("next", "done")]


# -- the tests -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, kafka_server: KafkaServer) -> Iterator[Played]:
    """What came of each, by name and log."""
    wanted = chosen(request, "name", "log")
    with folder_for(None) as folder:
        yield asyncio.run(play_all(folder, kafka_server.bootstrap, PLAYS, wanted))


@pytest.mark.parametrize(("name", "log"), on_a_log_in_turn(PLAYS))
def test_a_run_ends_once_and_as_it_should(
    request: pytest.FixtureRequest,
    played: Played,
    name: str,
    log: str,
) -> None:
    if log == "kafka":
        request.getfixturevalue("kafka")  # counts the test as one on it
    error = played[name, log]
    if error is not None:
        raise error
