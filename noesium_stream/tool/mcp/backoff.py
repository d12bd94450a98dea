"""Pauses between attempts to reach a server: pure, without clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Backoff:
    """Pauses that double, from `first_s` to `longest_s` seconds, until something has worked."""

    first_s: float = 0.1
    longest_s: float = 30.0
    failures: int = 0

    def worked(self) -> None:
        """Begin anew: the server has answered a call."""
        self.failures = 0

    def next_s(self, chance: float) -> float:
        """The next pause; `chance` in [0, 1) spreads it over its upper half."""
        pause: float = min(self.longest_s, self.first_s * 2.0 ** min(self.failures, 32))
        self.failures += 1
        return pause * (0.5 + chance / 2)
