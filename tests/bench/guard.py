"""`python -m tests.bench.guard`: what the guard of STRICT mode costs a node, beside the same node without."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from noesium_stream.kernel.strict.guard import guarded

ROUNDS = 5


def calls() -> int:
    def successor(n: int) -> int:
        return n + 1

    n = 0
    for _ in range(200_000):
        n = successor(n)
    return n


def words() -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for word in ("The quick brown fox, jumps over. " * 20_000).split():
        clean = word.lower().strip(".,")
        counts[clean] = counts.get(clean, 0) + 1
    return sorted(counts.items())


def documents() -> list[Any]:
    return [json.loads(json.dumps({"a": [1, 2, 3], "b": {"c": str(i)}})) for i in range(20_000)]


def arithmetic() -> float:
    total = 0.0
    for n in range(1_000_000):
        total += n * 0.5
    return total


async def empty() -> dict[str, Any]:
    return {}


async def ten_awaits() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def best(function: Callable[[], Any]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        function()
        taken.append(time.perf_counter() - begun)
    return min(taken)


async def best_async(function: Callable[[], Any], times: int) -> float:
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(times):
            await function()
        taken.append((time.perf_counter() - begun) / times)
    return min(taken)


async def main() -> None:
    for work in (calls, words, documents, arithmetic):
        plain, watched = best(work), best(guarded(work, "node"))
        cost = f"{plain * 1e3:8.1f} ms  guarded {watched * 1e3:8.1f} ms  {watched / plain:4.1f}x"
        print(f"{work.__name__:12} {cost}")
    for node in (empty, ten_awaits):
        plain, watched = await best_async(node, 2_000), await best_async(guarded(node, "node"), 2_000)
        print(f"{node.__name__:12} {plain * 1e6:8.1f} µs  guarded {watched * 1e6:8.1f} µs")


if __name__ == "__main__":
    asyncio.run(main())
