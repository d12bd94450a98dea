"""What lies outside of all processes: a file that every effect writes to, whoever calls it.

A call is a line when it has begun and a line when it is done, each appended whole (`O_APPEND`) and on the
disk (`fsync`) before anything else happens. Who is killed in between leaves a call that was begun.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.sim.world import result_of
from tests.support.invariants import Call

LONGEST_S = 0.02


class Ledger:
    """One process's way to the outside; in the place of a simulation's `World` (`tests.sim.cast`).

    Args:
        path: the file; several processes append to it.
        process: who calls.
        chance: how long a call takes.

    Attributes:
        during: called in the middle of each call, before it is done, with its kind.
        after: called when it is done, and the caller has not heard of it.
    """

    def __init__(self, path: Path, process: str, chance: Random) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._process = process
        self._chance = chance
        self._calls = 0
        self.during: Callable[[str], None] = lambda kind: None
        self.after: Callable[[str], None] = lambda kind: None

    async def do(self, kind: str, words: str, key: str) -> str:
        """Do it, and write that down."""
        self._calls += 1
        call = {"call": f"{self._process}-{self._calls}", "process": self._process}
        self._write({**call, "kind": kind, "words": words, "key": key, "begun_s": time.time()})
        await asyncio.sleep(self._chance.random() * LONGEST_S)
        self.during(kind)
        self._write({**call, "done_s": time.time(), "result": result_of(kind, words)})
        self.after(kind)
        return result_of(kind, words)

    def _write(self, line: dict[str, object]) -> None:
        data = json.dumps(line).encode() + b"\n"
        assert os.write(self._file, data) == len(data)
        os.fsync(self._file)


def read_ledger(path: Path) -> list[Call]:
    """The calls in the order in which they began; also while others write."""
    calls: dict[str, Call] = {}
    for text in path.read_text().splitlines() if path.exists() else ():
        line = json.loads(text)
        if "begun_s" in line:
            calls[line["call"]] = Call(
                line["key"], line["kind"], line["words"], line["process"], line["begun_s"]
            )
        else:
            call = calls[line["call"]]
            call.ended_s, call.outcome, call.result = line["done_s"], "done", line["result"]
    return list(calls.values())
