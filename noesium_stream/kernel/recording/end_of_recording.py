"""The end of a recording during replay: its clock, its end, and its patience.

A body may do something in real time beside a call without a result: sleep, compute in a thread, or give the
call up after a while. Only time distinguishes that from code that waits for good, and the recording has the
original duration of the step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from langgraph.errors import GraphInterrupt

from noesium_stream.clock import VirtualClock
from noesium_stream.kernel.recording.replay_index import RecordedStep

SPARE_S: Final = 1.0
"""Extra time that a body gets beyond the recorded one."""

LONGEST_S: Final = 30.0
"""Upper limit of the wait: the recording's clock may be one that nobody waited for."""

_SLOWER: Final = 2
_PAUSE_S: Final = 0.01


class StillClock(VirtualClock):
    """A clock that stands at the end of the recording: pauses are over, and no timer fires by itself."""

    async def sleep(self, seconds: float) -> None:
        """Return at once."""
        await asyncio.sleep(0)


class EndOfRecording(GraphInterrupt):
    """Signals that the recording of an open run ends here."""


async def while_others_go_on(step: RecordedStep, settled: Callable[[], bool]) -> None:
    """Return when `settled`, or when the step has had the time that it took in the recording."""
    patience_s = min(_SLOWER * step.lasted_ms / 1000 + SPARE_S, LONGEST_S)
    for _ in range(round(patience_s / _PAUSE_S)):
        if settled():
            return
        await asyncio.sleep(_PAUSE_S)
