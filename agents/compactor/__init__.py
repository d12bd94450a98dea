"""The compactor: sums up old facts of memory, and can be undone."""

from agents.compactor.agent import Compactor, CompactorOptions

AGENT = Compactor

__all__ = ["AGENT", "Compactor", "CompactorOptions"]
