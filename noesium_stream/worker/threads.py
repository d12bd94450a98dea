"""Threads for what waits in one: sync nodes, and what they wait for.

A sync node that calls something (`Step.wait`, a subgraph's `invoke`) keeps its thread until the answer is
there, and what answers may need a thread as well: a sync effect, a sync node of the subgraph. asyncio's own
pool has a few more threads than the machine has cores: as many such nodes at once would wait for one another
for ever.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

MAX_THREADS: Final = 1_000
"""Made when they are needed; a run that waits for long is parked and gives its threads back."""


def make_room_for_threads() -> None:
    """Give the running loop a pool with room, unless the program has chosen one."""
    loop: Any = asyncio.get_running_loop()
    chosen = getattr(loop, "_default_executor", None)
    if chosen is None or getattr(chosen, "_thread_name_prefix", "") == "asyncio":
        loop.set_default_executor(ThreadPoolExecutor(MAX_THREADS, "noesium"))
