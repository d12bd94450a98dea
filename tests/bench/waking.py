"""How soon a reader in another process sees a commit, and what it costs while nothing happens.

Ours waits on inotify; the one by hand asks `data_version` every 5 ms. Both stand beside each other in
processes of their own; commits go to one and the other in turn. A wake-up is counted from the moment before
the commit began (`synchronous=NORMAL`, some 30 µs) to the event in the reader's hand.

    python -m tests.bench.waking URL COUNT        the reader; prints `first`, then when it saw each event
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from pathlib import Path

from noesium_stream.log.open import open_log
from tests.bench.by_hand.sqlite_rows import insert, open_rows, row
from tests.bench.events import DOMAIN, catalogue, envelopes
from tests.bench.harness import Figure, Side, percentile, progress
from tests.bench.settings import Settings

OURS, BY_HAND = "EventLog.read in a process", "by hand: polling, 5 ms"
_ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 60.0
_PAUSE_S = 0.005


async def measure_waking(settings: Settings) -> list[Figure]:
    """Wake-ups at the 99th percentile, and idle CPU."""
    progress(
        f"sqlite: waking a reader {settings.repetitions} x {settings.wakes:,} times, "
        f"then {settings.repetitions} x {settings.idle_s:.0f} s idle"
    )
    url = f"sqlite:///{settings.folder / 'waking.db'}?synchronous=NORMAL"
    by_hand = settings.folder / "waking-by-hand.db"
    log = await open_log(url, catalogue=catalogue())
    rows = open_rows(by_hand, "NORMAL")
    readers: list[Process] = []
    try:
        topic = log.topology.events(DOMAIN)
        await log.ensure_topics([log.topology.spec(topic)])
        total = 1 + settings.repetitions * settings.wakes + 1
        events = envelopes(total)
        arguments = (["waking", url, str(total)], ["by_hand.sqlite_poll", str(by_hand), str(total)])
        for module, *rest in arguments:
            readers.append(await _start(module, *rest))
        rng = random.Random(1)
        sent: tuple[list[int], list[int]] = ([], [])

        async def commit_to_both() -> None:
            event = events[len(sent[0])]
            ready = row(event)
            sent[0].append(time.monotonic_ns())
            await log.append((event,))
            await asyncio.sleep(_PAUSE_S * (1 + rng.random()))
            sent[1].append(time.monotonic_ns())
            insert(rows, ready)
            await asyncio.sleep(_PAUSE_S * (1 + rng.random()))

        await commit_to_both()
        for reader in readers:
            await _line(reader, "first")
        for _ in range(settings.repetitions * settings.wakes):
            await commit_to_both()
        idle = await _idle(readers, settings)
        await commit_to_both()
        seen = [json.loads(await _line(reader)) for reader in readers]
    finally:
        for reader in readers:
            if reader.returncode is None:
                reader.kill()
            await reader.wait()
        await log.close()
        rows.close()
    return _figures(sent, seen, idle, settings)


def _figures(
    sent: tuple[list[int], list[int]], seen: list[list[int]], idle: list[list[float]], settings: Settings
) -> list[Figure]:
    late = [[(b - a) / 1e6 for a, b in zip(*pair, strict=True)] for pair in zip(sent, seen, strict=True)]
    rounds = [
        range(1 + r * settings.wakes, 1 + (r + 1) * settings.wakes) for r in range(settings.repetitions)
    ]

    def sides(share: float) -> list[Side]:
        return [
            Side(name, [percentile([times[number] for number in numbers], share) for numbers in rounds])
            for name, times in zip((OURS, BY_HAND), late, strict=True)
        ]

    wake, middle = sides(0.99), sides(0.5)
    costs = [Side(OURS, idle[0]), Side(BY_HAND, idle[1])]
    name = "a reader in another process wakes"
    note = "Of one core, while nothing is committed; ours looks twice a second as a net, nothing more."
    return [
        Figure("sqlite", f"{name}, p99", "ms", *wake, 2.0, at_least=False, absolute=True),
        Figure("sqlite", f"{name}, p50", "ms", *middle, at_least=False),
        Figure("sqlite", "an idle reader's CPU", "%", *costs, 0.1, at_least=False, note=note),
    ]


async def _idle(readers: list[Process], settings: Settings) -> list[list[float]]:
    """Percent of a core that each reader takes while nothing happens, per repetition."""
    found: list[list[float]] = [[] for _ in readers]
    for _ in range(settings.repetitions):
        before = [_cpu_s(reader.pid) for reader in readers]
        began = time.monotonic()
        await asyncio.sleep(settings.idle_s)
        seconds = time.monotonic() - began
        for number, reader in enumerate(readers):
            found[number].append(100 * (_cpu_s(reader.pid) - before[number]) / seconds)
    return found


def _cpu_s(pid: int) -> float:
    """CPU time of a process to the nanosecond: the number of Linux's clock for it (`clock_getcpuclockid`)."""
    return time.clock_gettime(~pid << 3 | 2)


async def _start(module: str, *arguments: str) -> Process:
    command = [sys.executable, "-m", f"tests.bench.{module}", *arguments]
    return await create_subprocess_exec(*command, cwd=_ROOT, stdout=PIPE, limit=1 << 24)


async def _line(reader: Process, wanted: str | None = None) -> str:
    assert reader.stdout is not None
    line = (await asyncio.wait_for(reader.stdout.readline(), _TIMEOUT_S)).decode().strip()
    if not line or (wanted is not None and line != wanted):
        raise RuntimeError(f"a reader said {line!r}")
    return line


async def read(url: str, count: int) -> None:
    """See `count` events, then say when each came."""
    log = await open_log(url, catalogue=catalogue())
    seen: list[int] = []
    async for _ in log.read(log.topology.events(DOMAIN), {}):
        seen.append(time.monotonic_ns())
        if len(seen) == 1:
            print("first", flush=True)
        if len(seen) == count:
            break
    print(json.dumps(seen), flush=True)
    await log.close()


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], int(sys.argv[2])))
