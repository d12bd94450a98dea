"""All bugs that are planted, by name."""

from tests.sim import planted_budgets as planted_budgets
from tests.sim import planted_promises as planted_promises
from tests.sim.planted import PLANTS, catch

__all__ = ["PLANTS", "catch"]
