"""A worker of `talks.py` in a process of its own, which may be told where to die.

`python -m tests.support.talks_worker URL HOME [POINT]`: POINT is as in `scheduling.py`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.events import catalogue
from tests.support.scheduling import DyingLog
from tests.support.talks import Talker


async def main(url: str, home: str, point: str = "") -> None:
    """Work until the process dies."""
    log = await open_log(url, catalogue=catalogue())
    async with Worker(DyingLog(log, point), [Talker], home=Path(home)):
        print("at work", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
