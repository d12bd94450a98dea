"""Flush schedule of a fold: soon after the first change, less often where writing is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

FLUSH_S: Final = 0.05
FLUSH_MOST_S: Final = 0.5
"""Upper limit of the flush interval, in seconds.

Where writes are slow, the interval grows so that they take a twentieth of the time.
"""


class Flusher:
    """Calls `flush` once, some time after the first of several requests.

    Errors of `flush` are reported elsewhere.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._timer: asyncio.TimerHandle | None = None
        self._took_s = 0.0

    def soon(self) -> None:
        """Schedule a flush, unless one is scheduled."""
        if self._timer is None:
            pause_s = max(FLUSH_S, min(FLUSH_MOST_S, 19 * self._took_s))
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._now)

    def cancel(self) -> None:
        """Cancel the scheduled flush: it was done, or nothing is left to write."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time
        began = now()
        with suppress(Exception):
            self._flush()
        self._took_s = now() - began
