"""A worker with a scheduler and an agent in a process of its own, which may be told where to die.

`python -m tests.support.scheduling URL HOME [POINT]`: POINT is `before` or `after`, a colon and an event
type. The process kills itself before or after it has appended or committed the second such event.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noesium_stream.agent.schedules import Scheduler
from noesium_stream.event import EventEnvelope
from noesium_stream.log import open_log
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.testing.hooked import Commit, HookedLog
from noesium_stream.worker import Worker
from tests.support.events import catalogue
from tests.support.sample_agents import Echo

_NUMBER = 2


class DyingLog(HookedLog):
    """A log whose process dies at a point."""

    def __init__(self, inner: Any, point: str) -> None:
        super().__init__(inner, self._commit)
        self._when, _, self._type = point.partition(":")
        self._left = _NUMBER

    async def append(self, envelopes: Sequence[EventEnvelope], **options: Any) -> list[Position]:
        hit = self._hit([one.event_type for one in envelopes])
        self._die("before", hit)
        positions: list[Position] = await self.inner.append(envelopes, **options)
        self._die("after", hit)
        return positions

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        hit = self._hit([one.envelope.event_type for one in outgoing])
        self._die("before", hit)
        positions = await commit(outgoing)
        self._die("after", hit)
        return positions

    def _hit(self, types: Sequence[str]) -> bool:
        if self._type not in types:
            return False
        self._left -= types.count(self._type)
        return self._left <= 0

    def _die(self, when: str, hit: bool) -> None:
        if hit and when == self._when:
            os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, home: Path, point: str) -> None:
    log: Any = DyingLog(await open_log(url, catalogue=catalogue()), point)
    async with Worker(log, [Scheduler, Echo], home=home) as worker:
        print("at work", flush=True)
        await worker.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
