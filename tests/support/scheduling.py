"""A worker with a scheduler and an agent in a process of its own, which may be told where to die.

`python -m tests.support.scheduling URL HOME [POINT]`: POINT is `before` or `after`, a colon and an event
type. The process kills itself before or after it has appended or committed the second such event. With
`:stop` behind it stands still there instead (SIGSTOP), and says so; sessions and leases are short then. It
says what became of the append or commit: `sent`, or the class of the error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from noesium_stream.agent.schedules import Scheduler
from noesium_stream.event import EventEnvelope
from noesium_stream.log import open_log
from noesium_stream.log.port import Outgoing, Position
from noesium_stream.testing.hooked import Commit, HookedLog
from noesium_stream.worker import Worker
from tests.support.events import catalogue
from tests.support.pausing import SESSION_S, change_sessions
from tests.support.sample_agents import Echo

_NUMBER = 2


class DyingLog(HookedLog):
    """A log whose process dies at a point."""

    def __init__(self, inner: Any, point: str) -> None:
        super().__init__(inner, self._commit)
        self._when, self._type, self._end = (*point.split(":"), "", "")[:3]
        self._left = _NUMBER
        self._over = False

    async def append(self, envelopes: Sequence[EventEnvelope], **options: Any) -> list[Position]:
        types = [one.event_type for one in envelopes]
        return await self._send(types, partial(self.inner.append, envelopes, **options))

    async def _commit(self, outgoing: Sequence[Outgoing], commit: Commit) -> list[Position]:
        return await self._send([one.envelope.event_type for one in outgoing], partial(commit, outgoing))

    async def _send(self, types: Sequence[str], send: Callable[[], Any]) -> list[Position]:
        if not self._hit(types):
            return await _sent(send)
        if self._when == "before":
            self._die()
        # To its end, also if the partition is let go meanwhile.
        sending = asyncio.ensure_future(_sent(send))
        sending.add_done_callback(_say)
        positions = await asyncio.shield(sending)
        if self._when == "after":
            self._die()
        return positions

    def _hit(self, types: Sequence[str]) -> bool:
        if self._over or self._type not in types:
            return False
        self._left -= types.count(self._type)
        self._over = self._left <= 0
        return self._over

    def _die(self) -> None:
        if self._end == "stop":
            print("stopped", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP if self._end == "stop" else signal.SIGKILL)


def _say(sending: asyncio.Task[list[Position]]) -> None:
    error = sending.exception()
    print("sent" if error is None else type(error).__name__, flush=True)


async def _sent(send: Callable[[], Any]) -> list[Position]:
    positions: list[Position] = await send()
    return positions


async def main(url: str, home: Path, point: str) -> None:
    """Work until the process is killed."""
    if point.endswith("stop"):
        change_sessions(SESSION_S)
    log: Any = DyingLog(await open_log(url, catalogue=catalogue()), point)
    async with Worker(log, [Scheduler, Echo], home=home) as worker:
        print("at work", flush=True)
        await worker.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
