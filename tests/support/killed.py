"""Workers that are killed, and what comes after them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from noesium_stream.client import Run
from noesium_stream.clock import SystemClock
from noesium_stream.event import EventEnvelope
from tests.support.reading import PATIENCE_S


class Later(SystemClock):
    """The time of an hour later: what a killed process might have reported is due by then."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


def killed(worker: Any) -> None:
    """Kill a running command by SIGKILL, and wait until it has ended."""
    worker.signal(signal.SIGKILL)
    worker.wait()


async def until(run: Run, happened: Callable[[EventEnvelope], bool]) -> None:
    """Wait until a run has an event of which `happened` is true."""
    async with asyncio.timeout(PATIENCE_S), aclosing(run.events()) as events:
        async for event in events:
            if happened(event):
                return
