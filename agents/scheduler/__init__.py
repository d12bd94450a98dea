"""The scheduler: starts runs of agents by the clock, as `noesium schedule` says."""

from noesium_stream.agent.schedules.scheduler import Scheduler

AGENT = Scheduler

__all__ = ["AGENT", "Scheduler"]
