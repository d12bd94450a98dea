"""Where a replay comes to the end of what is recorded: its clock, its end, and its patience.

A body may do something in real time beside a call of which nothing came: sleep, compute in a thread, or give
the call up after a while. Only time tells that from code that waits for good, and the recording says how
long the step took then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from langgraph.errors import GraphInterrupt

from noesium_stream.clock import VirtualClock
from noesium_stream.kernel.verify_recording import RecordedStep

SPARE_S: Final = 1.0
"""What a body is given beyond the recorded time."""

LONGEST_S: Final = 30.0
"""More than this is not waited: a recording may be of a clock that nobody waited for either."""

_SLOWER: Final = 2
_PAUSE_S: Final = 0.01


class StillClock(VirtualClock):
    """Its time is the end of the recording: pauses were waited for then, and no timer fires by itself."""

    async def sleep(self, seconds: float) -> None:
        """Do not wait."""
        await asyncio.sleep(0)


class EndOfRecording(GraphInterrupt):
    """The recording of an open run ends here."""


async def while_others_go_on(step: RecordedStep, settled: Callable[[], bool]) -> None:
    """Return when `settled`, or when the step has had the time that it took when it was recorded."""
    patience_s = min(_SLOWER * step.lasted_ms / 1000 + SPARE_S, LONGEST_S)
    for _ in range(round(patience_s / _PAUSE_S)):
        if settled():
            return
        await asyncio.sleep(_PAUSE_S)
