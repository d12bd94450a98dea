"""What a tree of processes uses, read from `/proc`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MEMORY: Final = re.compile(rb"^(?:RssAnon|RssShmem):\s+(\d{1,12}) kB$", re.MULTILINE)
_THREADS: Final = re.compile(rb"^Threads:\s+(\d{1,9})$", re.MULTILINE)
_WRITTEN: Final = re.compile(rb"^write_bytes: (\d{1,18})$", re.MULTILINE)
_MAX_READ: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes use together: their threads, memory in bytes, CPU time in seconds, bytes written.

    CPU time and written bytes include those of processes that have ended and were waited for.
    """

    processes: int = 0
    memory_bytes: int = 0
    cpu_s: float = 0.0
    written_bytes: int = 0


def children_of(pid: int) -> list[int]:
    """The children of all threads of a process; [] if it is gone."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        found += [int(child) for child in _read(f"/proc/{pid}/task/{task}/children").split()]
    return found


def tree_of(pid: int, most: int) -> list[int]:
    """The descendants of a process, without itself, parents first.

    Stops at more than `most`: a fork bomb makes them faster than they are found.
    """
    found: dict[int, None] = {}
    waiting = [pid]
    while waiting and len(found) <= most:
        for child in children_of(waiting.pop()):
            if child not in found:
                found[child] = None
                waiting.append(child)
    return list(found)


def usage_of(pids: Iterable[int]) -> Usage:
    """What processes use together."""
    processes = memory = ticks = written = 0
    for one in pids:
        status = _read(f"/proc/{one}/status")
        processes += sum(int(count) for count in _THREADS.findall(status))
        memory += 1024 * sum(int(size) for size in _MEMORY.findall(status))
        ticks += _ticks(one)
        written += sum(int(count) for count in _WRITTEN.findall(_read(f"/proc/{one}/io")))
    return Usage(processes, memory, ticks / _TICKS, written)


def _ticks(pid: int) -> int:
    # After the name, which may hold anything: fields 3 and following; utime to cstime are fields 14 to 17.
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return sum(int(field) for field in fields[11:15])


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(_MAX_READ) or b""
    except OSError:
        return b""
