"""Who may write an embedded log's file, without a key: where signatures are required, all is noticed."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from zlib import crc32

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.topics import Topology, partition_of
from noesium_stream.worker import Worker
from tests.security.test_signatures import OURS, REQUIRED, letters
from tests.support.reading import PATIENCE_S, eventually, stored
from tests.unit.worker.test_worker_faults import quick, sample


def replaced(path: Path, old: bytes, new: bytes) -> int:
    """Replace a text in all records, and make the checksums right again; return how many chunks had it."""
    assert len(old) == len(new)
    changed = 0
    with closing(sqlite3.connect(path)) as file, file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = {row[1] for row in file.execute(f'PRAGMA table_info("{table}")')}
            if not {"id", "data"} <= columns:
                continue
            for row_id, data in file.execute(f'SELECT id, data FROM "{table}"').fetchall():
                if old in data[4:]:
                    body = data[4:].replace(old, new)
                    sound = crc32(body).to_bytes(4, "little") + body
                    file.execute(f'UPDATE "{table}" SET data = ? WHERE id = ?', (sound, row_id))
                    changed += 1
    return changed


async def test_a_command_that_is_changed_in_the_file_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    url = f"sqlite:///{path}"
    log = await open_log(url, signer=OURS, verifier=REQUIRED)
    async with Client(log) as client:
        run = await client.start("sample", {"quick": True, "to": "alice"})
    await log.close()
    assert replaced(path, b"alice", b"mally") == 1
    log = await open_log(url, signer=OURS, verifier=REQUIRED)
    async with Worker(log, [sample(quick)], home=tmp_path):
        await eventually(lambda: letters(log))
        [reason] = await letters(log)
        assert "is not of this record in this place" in reason
        journal = await stored(log, log.topology.journal("sample"))
        assert "run.started" not in {record.event_type for record in journal if record.key == run.id}
    await log.close()


async def test_a_journal_that_is_changed_in_the_file_stops_its_partition_alone(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    url, names = f"sqlite:///{path}", Topology("noesium", 2)
    log = await open_log(url, topology=names, signer=OURS, verifier=REQUIRED)
    async with Client(log) as client, Worker(log, [sample(quick)], home=tmp_path / "a"):
        run = await client.start("sample", {"quick": True, "to": "alice"})
        await run.result(timeout=PATIENCE_S)
    await log.close()
    assert replaced(path, b"alice", b"mally") >= 2, "the command and its copy"
    log = await open_log(url, topology=names, signer=OURS, verifier=REQUIRED)
    stopped, lines = asyncio.Event(), list[str]()

    def progress(line: str) -> None:
        lines.append(line)
        if "is stopped" in line:
            stopped.set()

    async with (
        Client(log) as client,
        Worker(log, [sample(quick)], home=tmp_path / "b", progress=progress),
    ):
        await asyncio.wait_for(stopped.wait(), PATIENCE_S)
        other = await client.start("sample", {"quick": True})
        while partition_of(other.id, 2) == partition_of(run.id, 2):
            other = await client.start("sample", {"quick": True})
        assert (await other.result(timeout=PATIENCE_S))["done"]
    await log.close()
    [line] = [line for line in lines if "is stopped" in line]
    assert f"{names.journal('sample')}/{partition_of(run.id, 2)}@" in line
    assert "noesium_proof" in line
