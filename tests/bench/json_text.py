"""`python -m tests.bench.json_text [SIZE]`: hostile JSON, read and written, beside orjson on the same bytes.

Each line has the milliseconds in which orjson reads a text of SIZE bytes (1,000,000 unless told), our time as
a multiple of them, and the growth of the process in both. What is refused is measured as well. The last
columns are of the canonical text, beside orjson that writes the value, reads it, and compares both.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from noesium_stream.errors import EventValidationError
from noesium_stream.event.payload.canonical import canonical_text
from noesium_stream.event.payload.value import parse_json
from tests.support.hostile_json import hostile_texts

ROUNDS = 5


def tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (EventValidationError, ValueError):
        return None


def seconds(*calls: Callable[[], Any]) -> list[float]:
    """The best of several rounds, the calls in turn."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for number, call in enumerate(calls):
            gc.collect()
            begun = time.perf_counter()
            tried(call)
            best[number] = min(best[number], time.perf_counter() - begun)
    return best


def megabytes(call: Callable[[], Any]) -> float:
    """The growth of the peak of resident memory in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        Path("/proc/self/clear_refs").write_text("5")
        before = resident("VmRSS")
        tried(call)
        os.write(writing, str(resident("VmHWM") - before).encode())
        os._exit(0)
    os.waitpid(child, 0)
    grown = os.read(reading, 64)
    os.close(reading)
    os.close(writing)
    return int(grown) / 1024


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def round_trip(value: Any) -> bool:
    return bool(orjson.loads(orjson.dumps(value)) == value)


def line(text: bytes) -> str:
    by_orjson, by_us = partial(orjson.loads, text), partial(parse_json, text, "payload")
    plain, ours = seconds(by_orjson, by_us)
    memory = f"{megabytes(by_orjson):6.0f} MB {megabytes(by_us):6.0f} MB"
    out = f"{plain * 1e3:8.2f} ms {ours / plain:6.1f}x {memory}"
    value = tried(by_us)
    if value is None:
        return out
    plain, ours = seconds(partial(round_trip, value), partial(canonical_text, value, "payload"))
    return f"{out} {plain * 1e3:8.2f} ms {ours / plain:6.1f}x"


def main() -> None:
    size = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    print(f"{f'{size:,} bytes of':38} {'orjson':>11} {'ours':>7} {'orjson':>9} {'ours':>9}   canonical text")
    for name, text in hostile_texts(size).items():
        print(f"{name:38} {line(text)}", flush=True)


if __name__ == "__main__":
    main()
