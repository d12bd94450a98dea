"""When what is folded is written: soon after it came, and less often where writing takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

FLUSH_S: Final = 0.05
FLUSH_MOST_S: Final = 0.5
"""Where writing takes long it is done less often, so that it takes a twentieth of the time, up to here."""


class Flusher:
    """Calls `flush` once, some time after the first of several requests; what it raises is told elsewhere."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._timer: asyncio.TimerHandle | None = None
        self._took_s = 0.0

    def soon(self) -> None:
        """Flush in a moment, if that is not about to happen anyway."""
        if self._timer is None:
            pause_s = max(FLUSH_S, min(FLUSH_MOST_S, 19 * self._took_s))
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._now)

    def cancel(self) -> None:
        """Forget the request: it is done, or nothing is left to write."""
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
