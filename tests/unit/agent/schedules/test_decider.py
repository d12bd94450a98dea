"""What becomes of a tick: by the overlap policy, a pause, a trigger, a name that is taken."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from noesium_stream.agent.request import AgentRequest
from noesium_stream.agent.schedules.state import MOST_OPEN, MOST_WAITING
from noesium_stream.event.standard import (
    Overlap,
    RunCancelRequested,
    ScheduleAdded,
    SchedulePaused,
    ScheduleRefused,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleRunEnded,
    ScheduleTickSkipped,
    ScheduleTimes,
    ScheduleTriggered,
    ScheduleWoken,
)
from tests.property.test_schedule_decider import START, Play


def end(play: Play, run_id: str, status: str = "completed") -> None:
    play.send(ScheduleRunEnded(schedule="s", run_id=run_id, status=status, ended_ms=START))


def wake(play: Play, *ticks: int) -> None:
    play.clock.advance(max(0, max(ticks) - (play.clock.now_ms() - START) / 1000))
    play.wake(list(ticks))


def cancelled(play: Play) -> list[str]:
    return [
        one.event.run_id
        for one in play.made
        if isinstance(one, AgentRequest) and isinstance(one.event, RunCancelRequested)
    ]


def reasons(play: Play) -> list[str]:
    return [one.reason for one in play.made if isinstance(one, ScheduleTickSkipped)]


@pytest.mark.parametrize(
    ("overlap", "started", "waiting", "skipped"),
    [
        (Overlap.SKIP, 1, 0, ["overlap", "overlap"]),
        (Overlap.BUFFER_ONE, 1, 1, ["overlap"]),
        (Overlap.BUFFER_ALL, 1, 2, []),
        (Overlap.CANCEL_OTHER, 1, 1, ["replaced"]),
        (Overlap.TERMINATE_OTHER, 3, 0, []),
        (Overlap.ALLOW_ALL, 3, 0, []),
    ],
)
def test_three_ticks_during_one_run(overlap: Overlap, started: int, waiting: int, skipped: list[str]) -> None:
    play = Play(overlap)
    for tick in (1, 2, 3):
        wake(play, tick)
    assert len(play.started()) == started
    assert len(play.state.waiting) == waiting
    assert reasons(play) == skipped
    first = play.started()[0]
    if overlap is Overlap.CANCEL_OTHER:
        assert cancelled(play) == [first]  # asked once
    if overlap is Overlap.TERMINATE_OTHER:
        assert cancelled(play) == play.started()[:2]
        assert [tick.run_id for tick in play.state.open] == play.started()[2:]
    if waiting:
        end(play, first, "cancelled")
        assert len(play.started()) == started + 1
        assert play.state.last is not None
        assert (play.state.last.run_id, play.state.last.status) == (first, "cancelled")


def test_ticks_of_a_pause_are_not_made_up_and_a_trigger_works_in_it() -> None:
    play = Play(Overlap.ALLOW_ALL)
    play.send(SchedulePaused(schedule="s", note="tea"))
    wake(play, 1, 2)
    assert (play.started(), play.state.note) == ([], "tea")
    play.send(ScheduleTriggered(schedule="s"))
    assert len(play.started()) == 1
    play.send(ScheduleResumed(schedule="s"))
    wake(play, 1, 2)
    assert len(play.started()) == 1
    wake(play, 3)
    assert len(play.started()) == 2


def test_what_waits_in_a_pause_starts_after_it() -> None:
    play = Play(Overlap.BUFFER_ONE)
    wake(play, 1)
    wake(play, 2)
    play.send(SchedulePaused(schedule="s"))
    end(play, play.started()[0])
    assert len(play.started()) == 1
    play.send(ScheduleResumed(schedule="s"))
    assert len(play.started()) == 2


def test_late_ticks_are_told_also_where_an_earlier_owner_has_told_of_some_of_them() -> None:
    play = Play(Overlap.SKIP)
    second, now_ms = 1_000, START + 100_000
    told = partial(
        ScheduleWoken, schedule="s", schedule_id=play.state.schedule_id, missed_from_ms=START + second
    )
    for last in (3, 5, 5):
        until_ms = START + last * second
        play.send(told(now_ms=now_ms, until_ms=until_ms, missed=last, missed_until_ms=until_ms))
    skipped = [one for one in play.made if isinstance(one, ScheduleTickSkipped)]
    assert [(one.from_ms - START, one.until_ms - START, one.count, one.more) for one in skipped] == [
        (1_000, 3_000, 3, False),
        (3_001, 5_000, 1, True),
    ]


def test_a_trigger_may_have_an_overlap_policy_of_its_own() -> None:
    play = Play(Overlap.SKIP)
    wake(play, 1)
    play.send(ScheduleTriggered(schedule="s"))
    play.send(ScheduleTriggered(schedule="s", overlap=Overlap.ALLOW_ALL))
    assert len(play.started()) == 2


def test_a_name_is_taken_once_and_free_after_its_removal_for_another_schedule() -> None:
    play = Play(Overlap.SKIP)
    first = play.state
    again = ScheduleAdded(schedule="s", agent_type="b", times=ScheduleTimes(every_ms=5_000), catchup_ms=0)
    (refused,) = play.send(again).made
    assert isinstance(refused, ScheduleRefused)
    assert "there already" in refused.reason
    assert play.state == first
    wake(play, 1)
    play.send(ScheduleRemoved(schedule="s"))
    play.send(again)
    assert play.state.plan.agent_type == "b"
    assert play.state.schedule_id != first.schedule_id
    end(play, play.started()[0])  # of the first one: nobody waits for it
    assert play.state.last is None


@pytest.mark.parametrize("command", [SchedulePaused, ScheduleResumed, ScheduleTriggered, ScheduleRemoved])
def test_a_command_for_a_name_that_no_schedule_has_is_refused(command: Any) -> None:
    play = Play(Overlap.SKIP)
    play.send(ScheduleRemoved(schedule="s"))
    decision = play.send(command(schedule="s"))
    assert decision.state is None
    assert [one.reason for one in decision.made] == ["there is no schedule of this name"]  # type: ignore[union-attr]


def test_the_state_is_bounded() -> None:
    for overlap in (Overlap.ALLOW_ALL, Overlap.BUFFER_ALL):
        play = Play(overlap)
        for first in range(1, 301, 50):
            wake(play, *range(first, first + 50))
        assert len(play.state.open) <= MOST_OPEN
        assert len(play.state.waiting) <= MOST_WAITING
        assert set(reasons(play)) == {"full"}


def test_a_run_has_the_plan_of_its_schedule() -> None:
    play = Play(Overlap.SKIP)
    play.send(ScheduleRemoved(schedule="s"))
    play.send(
        ScheduleAdded(
            schedule="s",
            agent_type="a",
            input={"n": 1},
            times=ScheduleTimes(every_ms=1_000),
            catchup_ms=0,
            permissions=["fs:read"],
            mode="plan",
            limit_ms=5_000,
            agent_version="^2",
        )
    )
    wake(play, 7)
    requested = next(one.event for one in play.made if isinstance(one, AgentRequest))
    payload = requested.payload()
    assert (payload["input"], payload["agent_version"]) == ({"n": 1}, "^2")
    assert payload["deadline_ms"] == play.clock.now_ms() + 5_000
    assert payload["limits"] == {"permissions": ["fs:read"], "mode": "plan"}
    assert payload["attributes"] == {"schedule": "s"}
