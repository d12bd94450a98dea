"""A worker with a watchdog in a process of its own, which may be told where to die.

`python -m tests.support.reminding URL HOME [POINT]`: POINT as in `tests.support.scheduling`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from noesium_stream import AgentRequest, BaseWatchdog, Overdue
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.events import catalogue
from tests.support.scheduling import DyingLog

WITHIN = timedelta(milliseconds=500)


class Placed(DomainEvent, event_type="shop.placed"):
    number: int


class Paid(DomainEvent, event_type="shop.paid"):
    number: int


class Late(DomainEvent, event_type="reminders.late"):
    number: int


class Unpaid(BaseWatchdog):
    """An order that is not paid in time."""

    agent_type = "unpaid"
    topic = "events.shop"
    begins = ("shop.placed",)
    ends = ("shop.paid",)
    within = WITHIN
    reads = (Placed, Paid)
    events = (Late,)

    def overdue(self, one: Overdue) -> Iterable[DomainEvent | AgentRequest]:
        yield Late(number=one.payload["number"])


async def main(url: str, home: Path, point: str) -> None:
    log: Any = DyingLog(await open_log(url, catalogue=catalogue()), point)
    async with Worker(log, [Unpaid], home=home) as worker:
        print("at work", flush=True)
        await worker.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""))
