"""A watcher of agents' health in a process of its own.

`python -m tests.support.watching_process URL NAME` watches in the name of the agent NAME, and looks often.
"""

from __future__ import annotations

import asyncio
import sys

from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef
from noesium_stream.log import open_log
from noesium_stream.worker.watch.watcher import Watcher


async def main(url: str, name: str) -> None:
    """Watch until killed."""
    log = await open_log(url)
    await Watcher(log, AgentRef(name, name), SystemClock(), period_s=0.02).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
