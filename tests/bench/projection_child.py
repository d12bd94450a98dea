"""One process that attaches a projection, or reads its past; prints one line of JSON.

    python -m tests.bench.projection_child follow|pull|past '{"bootstrap": …, "fold": "count", …}'

`follow`: from joining the group until all of `until` is folded and written. `pull`: the same, after the state
was pulled from `depot`. `past`: the state as it was.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from noesium_stream.log.open import open_log
from noesium_stream.log.port import EventLog, Position, TopicPartition
from noesium_stream.projection.attached import DISCOVER_S, AttachedProjection
from noesium_stream.projection.base import AnyProjection
from noesium_stream.projection.group.member import GroupMember, group_of
from noesium_stream.projection.stored.folder import version_folder
from noesium_stream.projection.stored.stored_projection import StoredProjection, describe
from noesium_stream.projection.transfer.object_store import Depot
from noesium_stream.projection.transfer.pull import pull
from noesium_stream.projection.versions.state_at import state_at
from noesium_stream.projection.versions.state_until import At
from tests.bench.events import catalogue
from tests.bench.projection_folds import MEASURED


class Timed(AttachedProjection):
    """Notes when its first partitions came."""

    def __init__(self, log: EventLog, projection: AnyProjection, folder: Path) -> None:
        super().__init__(log, projection, folder)
        self._member = self.member = TimedMember(log, projection, folder, _say, None, DISCOVER_S)

    @property
    def assigned_at(self) -> float:
        return self.member.assigned_at


class TimedMember(GroupMember):
    assigned_at = 0.0

    async def _assigned(self, tps: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        self.assigned_at = self.assigned_at or time.perf_counter()
        return await super()._assigned(tps)


class Memory:
    """The most memory that this process ever had resident, from its making on."""

    def __init__(self) -> None:
        self.most = self.before = resident_mb()

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            self.most = max(self.most, resident_mb())


async def follow(asked: Mapping[str, Any], log: EventLog, projection: AnyProjection) -> dict[str, Any]:
    """Attach, fold all of `until`, write it."""
    folder = Path(asked["folder"])
    if "depot" not in asked:
        describe(folder, projection, group_of(log, projection), None)
    attached = Timed(log, projection, folder)
    memory = Memory()
    watching = asyncio.create_task(memory.watch()) if asked.get("memory") else None
    began = time.perf_counter()
    if "depot" in asked:
        load = partial(_loaded, projection)
        depot, name = Depot(asked["depot"]), projection.name
        await pull(log, depot, folder, name, version=None, verifier=None, load=load, report=_say)
    await attached.start()
    while not attached.folds:
        await asyncio.sleep(0.005)
    ends = [Position(asked["topic"], int(partition), offset) for partition, offset in asked["until"].items()]
    await asyncio.gather(*map(attached.wait_for, ends))
    attached.flush()
    done = time.perf_counter()
    if watching is not None:
        watching.cancel()
    found = {
        "seconds": done - began,
        "from_first": done - attached.assigned_at,
        "events": sum(fold.manifest.events for fold in attached.folds.values()),
        "letters": sum(fold.manifest.held for fold in attached.folds.values()),
        "before_mb": memory.before,
        "most_mb": memory.most,
        "after_mb": resident_mb(),
    }
    if asked.get("total"):
        found["total"] = sum(state for _, state in attached.scan())
    await attached.close()
    await attached.wait()
    return found


def _loaded(projection: AnyProjection, reference: str) -> AnyProjection:
    return projection


def _say(text: str) -> None:
    print(text, file=sys.stderr)


async def past(asked: Mapping[str, Any], log: EventLog, projection: AnyProjection) -> dict[str, Any]:
    """The state of every partition at a time of the log."""
    folder = Path(asked["folder"])
    describe(folder, projection, group_of(log, projection), None)
    stored = StoredProjection(version_folder(folder, projection), partial(_loaded, projection))
    began = time.perf_counter()
    async with state_at(
        log, projection, stored, At(time_ms=asked["time_ms"]), load=partial(_loaded, projection)
    ) as was:
        done = time.perf_counter()
        found: dict[str, Any] = {"seconds": done - began}
        if asked.get("total"):
            found["total"] = sum(state for _, state in was.rows())
    return found


def resident_mb() -> float:
    """Of this process, as Linux has it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 2)


async def main(what: str, asked: Mapping[str, Any]) -> None:
    """Do it; print what was found."""
    log = await open_log(
        f"kafka://{asked['bootstrap']}?namespace={asked['namespace']}", catalogue=catalogue()
    )
    projection = MEASURED[asked["fold"]]()
    try:
        print(json.dumps(await (past if what == "past" else follow)(asked, log, projection)))
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
