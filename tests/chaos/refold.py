"""What the log says, folded by a process of its own: from the beginning, and from what others have kept.

In each of the launcher's hash seeds once; what comes out has to be the same (`check.diverged`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.engine import ProjectionEngine
from noesium_stream.projection.state.codec import StateCodec
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.restore import restore, state_path
from noesium_stream.worker.state.state_file import Identity
from tests.chaos.workload import KINDS, Tally

REPORT = "fold.json"
BEGINNING = "beginning"


async def refold(url: str, folder: Path, homes: Mapping[str, str]) -> None:
    """Write to `folder` what came out, and by what it was made.

    Args:
        url: of the log.
        folder: for the report, and for copies of what was kept.
        homes: folders of processes, by what they are called in the report.
    """
    log = await open_log(url)
    said: list[str] = []
    found: dict[str, dict[str, Any]] = {"worker": {}, "tally": {}}
    try:
        for name, path in {BEGINNING: "", **homes}.items():
            home = folder / "copies" / name
            if path:
                shutil.copytree(path, home)
            found["worker"][name] = await _worker(log, home, said.append)
            states = sorted(home.glob("projections/*")) if path else [home / "none"]
            for state in states:
                found["tally"][name] = await _tally(log, state, said.append)
    finally:
        await log.close()
    (folder / REPORT).write_text(json.dumps({"folded": found, "said": said}))


async def _worker(log: EventLog, home: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The worker's state of each partition, from the file that lies there, if one does."""
    states: dict[str, Any] = {}
    for kind in KINDS:
        journal = log.topology.journal(kind)
        topic_id = await log.topic_id(journal)
        for number in await log.end(journal):
            kept = state_path(home, Identity(journal, topic_id, number), kind).exists()
            if home.exists() and not kept:
                continue
            state = await restore(log, home, kind, number, Bounds(), say, in_file=kept)
            states[f"{kind}/{number}"] = _dumped(state)
            state.close()
    return states


def _dumped(state: PartitionState) -> dict[str, Any]:
    """All that follows from the journal alone."""
    manifest = state.manifest
    return {
        "open": {run_id: [run.count, run.spans] for run_id, run in sorted(state.open.items())},
        "ended": [list(row) for row in state.file.read("SELECT run_id, ms FROM ended ORDER BY run_id")],
        "last": [manifest.last_offset, manifest.last_event_id],
        "low": manifest.low,
        "newest_ms": manifest.newest_ms,
        "last_fair": manifest.last_fair,
    }


async def _tally(log: EventLog, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The projection's rows, by partition: what a run sends to another lies in both runs' partitions."""
    codec: StateCodec[Any] = StateCodec(Tally())
    rows: dict[str, Any] = {}
    with ProjectionEngine(log, folder, report=say) as engine:
        engine.register("tally", Tally())
        for manifest in await engine.catch_up("tally"):
            of = manifest.identity
            file = engine.file("tally", TopicPartition(of.topic, of.partition))
            assert file is not None
            for key, value in file.scan(b"s"):
                rows[f"{of.topic}/{of.partition}/{key[1:].decode()}"] = codec.decode(value)
    return rows
