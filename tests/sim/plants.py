"""All bugs that are planted, by name."""

from tests.sim import planted_budgets as planted_budgets
from tests.sim import planted_promises as planted_promises
from tests.sim.planted import PLANTS, catch
from tests.sim.schedules import planted as planted_schedules

__all__ = ["PLANTS", "catch", "planted_schedules"]
