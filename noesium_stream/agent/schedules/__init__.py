"""Schedules: runs that start by the clock (RFC-1001 §11)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.agent.schedules.decider import Decision, decide
    from noesium_stream.agent.schedules.projection import SCHEDULES, Schedules
    from noesium_stream.agent.schedules.scheduler import Scheduler
    from noesium_stream.agent.schedules.state import Ended, Plan, Schedule, Tick
    from noesium_stream.agent.schedules.times import Due, check_times, due, due_times

__all__ = [
    "SCHEDULES",
    "Decision",
    "Due",
    "Ended",
    "Plan",
    "Schedule",
    "Scheduler",
    "Schedules",
    "Tick",
    "check_times",
    "decide",
    "due",
    "due_times",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "SCHEDULES": "projection",
            "Decision": "decider",
            "Due": "times",
            "Ended": "state",
            "Plan": "state",
            "Schedule": "state",
            "Scheduler": "scheduler",
            "Schedules": "projection",
            "Tick": "state",
            "check_times": "times",
            "decide": "decider",
            "due": "times",
            "due_times": "times",
        },
    )
