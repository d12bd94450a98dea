"""What a sandboxed shell call costs over a bare one."""

from __future__ import annotations

import asyncio
import tempfile
import time
from asyncio.subprocess import PIPE
from pathlib import Path
from statistics import median

from noesium_stream.tool.sandbox import Walls, find_sandbox
from tests.bench.harness import Figure, Side

COMMAND = ("/bin/sh", "-c", "true")
CALLS = 20
MOST_MS = 25.0


async def measure_sandbox(repetitions: int) -> list[Figure]:
    """Milliseconds that a call takes beyond a bare process; the median of each round."""
    sandbox = find_sandbox()
    over: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        walls = Walls(Path(folder), ("**",), ("**",))
        for _ in range(repetitions):
            pairs = []
            for _ in range(CALLS):
                begun = time.perf_counter()
                process = await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE)
                await process.communicate()
                between = time.perf_counter()
                await sandbox.run(COMMAND, walls)
                pairs.append((between - begun, time.perf_counter() - between))
            bare.append(median(plain for plain, _ in pairs) * 1e3)
            over.append(median(walled - plain for plain, walled in pairs) * 1e3)
    return [
        Figure(
            "sandbox",
            f"a shell call in {sandbox.name}, beyond a bare one",
            "ms",
            Side("beyond", over),
            Side("bare", bare),
            MOST_MS,
            at_least=False,
            absolute=True,
        )
    ]
