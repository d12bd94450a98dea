"""Shared parts of the peers' programs: lines of JSON, runs in flight, and the step that waits for a gate.

Each program runs in the Python of its system, so that this module needs nothing but the standard library.

    PROGRAM worker '{…}'    serves until it is killed; prints `{"ready": true}` when it takes work
    PROGRAM client '{…}'    does what `do` says, and prints what it measured

What a client does: `runs` (two trivial steps each, `at_once` in flight), `lone` (ten steps, one run after the
other), `open` (runs whose second step waits for a gate) and `talk` (conversations in a growing state).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import string
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Asked = dict[str, Any]
One = Callable[[int], Awaitable[Any]]
STEPS = 10
"""Steps of a lone run."""


def say(**what: Any) -> None:
    """Print a line for the bench."""
    print(json.dumps(what), flush=True)


async def pass_gate(asked: Asked) -> None:
    """Note that the step's body has begun, and wait until the gate is open."""
    mark = f"{time.monotonic()}\n".encode()
    handle = os.open(asked["marks"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, mark)
    os.close(handle)
    gate = Path(asked["gate"])
    while not gate.exists():
        await asyncio.sleep(0.02)


async def in_flight(count: int, at_once: int, one: One) -> float:
    """Seconds in which `count` runs end, of which so many are in flight."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await one(number)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(min(at_once, count))))
    return time.perf_counter() - began


async def measure(asked: Asked, *, pair: One, chain: One) -> None:
    """The rows `runs` and `lone`: `pair` does a run of two steps, `chain` one of ten."""
    count = asked["count"]
    if asked["do"] == "runs":
        await in_flight(asked["warm"], asked["at_once"], pair)
        say(seconds=await in_flight(count, asked["at_once"], pair))
        return
    times = []
    for number in range(asked["warm"] + count):
        began = time.perf_counter()
        await chain(number)
        times.append(1e3 * (time.perf_counter() - began))
    say(ms=times[asked["warm"] :])


async def all_open(asked: Asked, start: One) -> None:
    """The row `open`: `start` starts a run and returns what waits for its result."""
    waits = [await start(number) for number in range(asked["count"])]
    say(started=len(waits))
    await asyncio.gather(*waits)
    say(done_at=time.monotonic())


async def talk(asked: Asked, conversation: One) -> None:
    """The row `talk`: so many conversations, eight at a time."""
    say(seconds=await in_flight(asked["count"], 8, conversation))


def text(asked: Asked) -> str:
    """A message of the wanted length: random letters, which hardly compress, and no two messages alike."""
    return "".join(random.SystemRandom().choices(string.ascii_letters + " ", k=asked["bytes"]))


def main(worker: Callable[[Asked], Awaitable[None]], client: Callable[[Asked], Awaitable[None]]) -> None:
    """Run what the command line says."""
    role, asked = sys.argv[1], json.loads(sys.argv[2])
    asyncio.run((worker if role == "worker" else client)(asked))


def expect(found: Any, wanted: Any) -> None:
    """Stop where a run gave another result: its figure would be of something else."""
    if found != wanted:
        raise RuntimeError(f"a run gave {found!r} instead of {wanted!r}")


async def forever() -> None:
    """Until the process is killed."""
    await asyncio.Event().wait()
