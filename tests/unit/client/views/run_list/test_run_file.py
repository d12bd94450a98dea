"""Lists of runs that are kept on a machine say the same as lists that are read anew."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client
from noesium_stream.client.views.run_list import run_file
from noesium_stream.client.views.run_list.run_file import FOLDER, RunFile
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import RunFailed, RunRequested
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.log.port import EventLog
from noesium_stream.log.prepare import Prepared, header_text
from noesium_stream.state_file.claim import locked
from noesium_stream.worker import Worker
from tests.support.effects import reached
from tests.support.reading import PATIENCE_S
from tests.support.stores import inject

WHERE = (
    None,
    "customer = 7",
    "customer = 7 and status = open",
    "phase = sent",
    "input.customer >= 8",
    "by != x",
)


class State(TypedDict, total=False):
    customer: int


async def receive(state: State) -> dict[str, Any]:
    step = current_step()
    step.set_attributes(customer=state["customer"], phase="received")
    await step.signal("go")
    step.set_attributes(phase="sent")
    return {}


DESK = agent_from_graph(StateGraph(State).add_node(receive).add_edge(START, "receive"), agent_type="desk")


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[EventLog]:
    log = await open_log(f"sqlite:///{tmp_path / 'log.db'}")
    yield log
    await log.close()


def file_of(folder: Path) -> Path:
    return folder / FOLDER / "desk.db"


async def same(log: EventLog, folder: Path) -> int:
    """Compare the kept lists with those that are read anew; return how many runs there are."""
    async with Client(log) as anew, Client(log, index=folder) as kept:
        for where in WHERE:
            assert await kept.list_runs(where=where) == await anew.list_runs(where=where)
        return len(await kept.list_runs())


async def ended(log: EventLog, home: Path, customers: range) -> None:
    async with Worker(log, [DESK], home=home), Client(log) as client:
        for customer in customers:
            run = await client.start("desk", {"customer": customer}, attributes={"region": "north"})
            await reached(run, "kernel.signal.awaited")
            await run.signal("go")
            await run.result(timeout=PATIENCE_S)


async def records_read(log: EventLog, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many records of life cycles a list reads for what is kept."""
    count, take = 0, run_file.RunFold.take

    def counted(self: Any, *record: Any) -> bool:
        nonlocal count
        count += 1
        return take(self, *record)

    with monkeypatch.context() as patch:
        patch.setattr(run_file.RunFold, "take", counted)
        await Client(log, index=folder).list_runs()
    return count


async def test_at_every_stage_of_runs_a_kept_list_says_the_same(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        runs = [await client.start("desk", {"customer": 7}, attributes={"customer": 1}) for _ in range(3)]
        assert await same(log, tmp_path) == 3, "nobody has accepted them"
        async with Worker(log, [DESK], home=tmp_path / "1"):
            for run in runs:
                await reached(run, "kernel.signal.awaited")
            assert await same(log, tmp_path) == 3
            await runs[0].signal("go")
            await runs[0].result(timeout=PATIENCE_S)
            await runs[1].cancel()
            later = await client.start("desk", {"customer": 8, "more": {"of": ["it"]}})
            await reached(later, "kernel.signal.awaited")
            assert await same(log, tmp_path) == 4
        assert await same(log, tmp_path) == 4
        await client.grow("desk", 9)
        await client.start("desk", {"customer": 9})
        assert await same(log, tmp_path) == 5


async def test_a_second_list_reads_later_records_alone(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(log, tmp_path / "1", range(5))
    first = await records_read(log, tmp_path, monkeypatch)
    assert first >= 5 * 6
    assert await records_read(log, tmp_path, monkeypatch) == 0
    await ended(log, tmp_path / "2", range(1))
    assert await records_read(log, tmp_path, monkeypatch) == first / 5
    assert await same(log, tmp_path) == 6


KILLED = """
import asyncio, os, sys
from pathlib import Path
from noesium_stream.client import Client
from noesium_stream.client.views.run_list import run_file
from noesium_stream.log import open_log

class Dying:
    def __init__(self, db): self.db = db
    def __getattr__(self, name): return getattr(self.db, name)
    def executemany(self, statement, rows):
        self.db.executemany(statement, rows)
        if statement.startswith(sys.argv[3]): os._exit(9)

write = run_file._write
run_file._write = lambda db, *rest: write(Dying(db), *rest)

async def main():
    async with Client(await open_log(sys.argv[1]), index=Path(sys.argv[2])) as client:
        await client.list_runs()

asyncio.run(main())
"""


@pytest.mark.parametrize("at", ["DELETE", "INSERT INTO run", "INSERT OR REPLACE INTO cursor"])
async def test_after_a_process_was_killed_while_it_wrote_the_list_says_the_same(
    log: EventLog, tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(log, tmp_path / "1", range(2))
    assert await same(log, tmp_path) == 2
    await ended(log, tmp_path / "2", range(2))
    url = f"sqlite:///{tmp_path / 'log.db'}"
    died = subprocess.run([sys.executable, "-c", KILLED, url, str(tmp_path), at], check=False, timeout=600)
    assert died.returncode == 9
    assert await records_read(log, tmp_path, monkeypatch) > 0, "nothing of it counts"
    assert await same(log, tmp_path) == 4


def change_a_row(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE run SET body = replace(body, 'completed', 'cancelled')")
    db.close()


def change_a_command(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("""UPDATE asked SET body = replace(body, '"customer": ', '"customer": 7')""")
    db.close()


def change_the_version(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE about SET version = '0'")
    db.close()


def lose_a_table(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE asked")
    db.close()


def be_of_another_log(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE cursor SET topic_id = 'x'")
    db.close()


def be_of_a_log_that_was_restored(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE cursor SET last_event_id = 'x' WHERE last_offset IS NOT NULL")
        db.execute("DELETE FROM run")
    db.close()


def be_ahead(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("UPDATE cursor SET next = next + 1000")
    db.close()


def be_garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1_000)


def be_cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5_000])


@pytest.mark.parametrize(
    "damage",
    [
        *(change_a_row, change_a_command, change_the_version, lose_a_table, be_of_another_log),
        *(be_of_a_log_that_was_restored, be_ahead, be_garbage, be_cut_off),
    ],
)
async def test_a_damaged_file_is_made_anew(
    log: EventLog, tmp_path: Path, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ended(log, tmp_path / "1", range(3))
    assert await same(log, tmp_path) == 3
    damage(file_of(tmp_path))
    assert await same(log, tmp_path) == 3
    assert await records_read(log, tmp_path, monkeypatch) == 0, "it is whole again"


async def test_a_file_that_another_process_writes_or_that_has_no_place_changes_nothing(
    log: EventLog, tmp_path: Path
) -> None:
    await ended(log, tmp_path / "1", range(1))
    (tmp_path / FOLDER).mkdir()
    with locked(file_of(tmp_path)):
        assert await same(log, tmp_path) == 1
    assert not file_of(tmp_path).exists()
    (tmp_path / "file").write_text("no folder")
    assert await same(log, tmp_path / "file") == 1


async def test_what_one_without_the_keys_has_folded_is_not_for_others(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(log) as client:
        await client.start("desk", {"customer": 7})
    trace, inbox = TraceContext("1" * 32, "2" * 16), log.topology.inbox("desk")
    command = RunRequested(run_id="r", agent_type="desk", input={}).to_envelope(AgentRef("c", "c"), trace)
    await inject(log, Prepared(inbox, 0, "r", header_text(command), (), b"sealed"))
    monkeypatch.setattr(run_file, "_lacks_key", lambda record: record.value == b"sealed")
    assert await same(log, tmp_path) == 1
    assert await records_read(log, tmp_path, monkeypatch) == 2
    monkeypatch.undo()
    assert await same(log, tmp_path) == 1
    assert await records_read(log, tmp_path, monkeypatch) == 0, "a record that nobody can read is passed over"


async def test_an_inbox_record_that_is_no_command_says_nothing_of_a_run(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        run = await client.start("desk", {"customer": 7})
        failed = RunFailed(run_id=run.id, error_type="E", message="hostile", duration_ms=1, input={})  # type: ignore[call-arg]
        trace = TraceContext("1" * 32, "2" * 16)
        await log.append(
            [failed.to_envelope(AgentRef("c", "c"), trace, partition_key=run.id, metadata={"to": "desk"})]
        )
        [info] = await client.list_runs()
        assert (info.status, info.error) == ("waiting", None)
    assert await same(log, tmp_path) == 1


async def test_a_file_is_private_and_is_where_erasure_finds_it(log: EventLog, tmp_path: Path) -> None:
    await ended(log, tmp_path / "1", range(1))
    folder = tmp_path / "home" / "projections" / "of-this-log"
    await same(log, folder)
    assert RunFile(log, folder, "desk").path.stat().st_mode & 0o077 == 0
    from noesium_stream.client.erasure.local_state import state_files  # noqa: PLC0415

    assert file_of(folder) in state_files([tmp_path / "home" / "projections"])
