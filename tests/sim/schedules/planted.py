"""Bugs like those of `tests.sim.planted`, in schedules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from noesium_stream.agent.schedules import cron, decider
from noesium_stream.agent.schedules.feeder import ScheduleFeeder
from noesium_stream.event.standard import Overlap
from tests.sim.planted import planted
from tests.sim.schedules.stage import schedule_stage

_planted: Callable[..., Any] = partial(planted, make_stage=schedule_stage)


@_planted("overlap")
def start_beside_an_open_run(patch: pytest.MonkeyPatch) -> None:
    """The overlap policy is not looked at."""
    true_take = decider._Work.take
    patch.setattr(decider._Work, "take", lambda self, tick, policy: true_take(self, tick, Overlap.ALLOW_ALL))


@_planted("decision")
def skip_late_ticks_in_silence(patch: pytest.MonkeyPatch) -> None:
    """Nobody is told of ticks that came too late."""
    true_skip = decider._Work.skip

    def skip(self: Any, reason: str, *span: Any, **more: Any) -> None:
        if reason != "late":
            true_skip(self, reason, *span, **more)

    patch.setattr(decider._Work, "skip", skip)


@_planted("tick")
def read_cron_by_the_wall_clock_alone(patch: pytest.MonkeyPatch) -> None:
    """What a clock shows twice comes twice, and what it leaps over does not come."""
    true_moments = cron._moments
    patch.setattr(cron, "_moments", lambda wall, where, by_passing_time: true_moments(wall, where, True))


@_planted("tick")
def wait_for_a_tick_that_is_dealt_with(patch: pytest.MonkeyPatch) -> None:
    """A tick that was dealt with before its append was acknowledged is waited for."""

    def told(self: Any, events: Sequence[Any]) -> None:
        for name, event in events:
            self._last[name] = event.until_ms, self._clock.monotonic()

    patch.setattr(ScheduleFeeder, "_told", told)
