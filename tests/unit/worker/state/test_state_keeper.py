"""An owner's state in its file: only what came since is read back, and no file is trusted."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.client import Client, Run
from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ProjectionError, StateFileError
from noesium_stream.event.standard import PartitionAcquired
from noesium_stream.kernel import current_step
from noesium_stream.log import EventLog, open_log
from noesium_stream.state_file.sqlite import connect
from noesium_stream.worker import Bounds, Worker
from noesium_stream.worker.state import state_keeper
from noesium_stream.worker.state.partition_state import PartitionState
from noesium_stream.worker.state.restore import restore
from noesium_stream.worker.state.state_file import Identity, StateFile, open_state_file
from tests.support.effects import reached
from tests.support.evicting import evict_at_once
from tests.support.lives import Life, state_files
from tests.support.reading import PATIENCE_S, eventually

DAY_S = 86_400


class State(TypedDict, total=False):
    asks: bool
    value: Any


BEGUN: Counter[str] = Counter()
GATES: list[asyncio.Event] = []


async def work(state: State) -> dict[str, Any]:
    step = current_step()
    BEGUN[step.run_id] += 1
    if state["asks"]:
        return {"value": (await step.interrupt("Go on?")).answered_by}
    for gate in GATES:
        await gate.wait()
    return {"value": "done"}


def agent() -> Any:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    return agent_from_graph(graph)


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventLog]:
    BEGUN.clear()
    GATES.clear()
    evict_at_once(monkeypatch)
    log = await open_log("memory://?partitions=1")
    yield log
    await log.close()


def unlink(home: Path) -> None:
    for file in state_files(home):
        for suffix in ("", "-wal", "-shm"):
            file.with_name(f"{file.name}{suffix}").unlink(missing_ok=True)


async def some_runs(log: EventLog, home: Path, client: Client) -> tuple[list[Run], list[Run]]:
    """Runs that have ended, and some that rest; the worker is gone."""
    life = Life(log, agent(), home)
    async with life.worker:
        ended = [await client.start("sample", {"asks": False}) for _ in range(6)]
        resting = [await client.start("sample", {"asks": True}) for _ in range(4)]
        for run in ended:
            await run.result(timeout=PATIENCE_S)
        for run in resting:
            await reached(run, "approval.requested")
        await eventually(lambda: sum(owner.evicted_runs for owner in life.tenures) == len(resting))
    return ended, resting


class Read:
    """Counts what is read of a journal, but not in search of the previous owner."""

    def __init__(self, log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        read_batches = log.read_batches

        async def counted(topic: str, *args: Any, **options: Any) -> AsyncIterator[Any]:
            async for batch in read_batches(topic, *args, **options):
                if topic.endswith(".journal") and options.get("types") != (PartitionAcquired.TYPE,):
                    self.records += len(batch)
                yield batch

        monkeypatch.setattr(log, "read_batches", counted)


async def test_a_restart_reads_only_what_came_since_and_loads_nothing_that_rests(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(log) as client:
        _, resting = await some_runs(log, tmp_path, client)
        BEGUN.clear()
        read = Read(log, monkeypatch)
        life = Life(log, agent(), tmp_path)
        async with life.worker:
            await eventually(lambda: life.tenures)
            [owner] = life.tenures
            assert read.records == 2, "the last one that was folded, and that the partition was acquired"
            assert (len(owner.runs.loaded), owner.open_runs) == (0, 4)
            await resting[2].approve(by="ann")
            assert (await resting[2].result(timeout=PATIENCE_S))["value"] == "ann"
        assert {resting[2].id: 1} == BEGUN


async def test_without_its_file_an_owner_reads_all_and_resumes_all(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(log) as client:
        ended, resting = await some_runs(log, tmp_path, client)
        BEGUN.clear()
        unlink(tmp_path)
        life = Life(log, agent(), tmp_path)
        async with life.worker:
            await eventually(lambda: sum(owner.evicted_runs for owner in life.tenures) == len(resting))
            await eventually(lambda: BEGUN.keys() == {run.id for run in resting})
            for run in resting:
                await run.approve(by="ann")
                assert (await run.result(timeout=PATIENCE_S))["value"] == "ann"
        assert not BEGUN.keys() & {run.id for run in ended}


async def test_an_owner_with_another_graph_looks_at_all_that_rested_with_the_older_one(
    log: EventLog, tmp_path: Path
) -> None:
    async with Client(log) as client:
        _, resting = await some_runs(log, tmp_path, client)
        graph = StateGraph(State)
        graph.add_node("other", work)
        graph.add_edge(START, "other")
        async with Life(log, agent_from_graph(graph, version="2.0.0"), tmp_path).worker:
            for run in resting:
                await reached(run, "run.parked")


async def states(log: EventLog, home: Path, said: list[str]) -> PartitionState:
    return await restore(log, home, "sample", 0, Bounds(), said.append)


def content(state: PartitionState, run_ids: list[str]) -> Any:
    runs = {run_id: (run.count, run.spans) for run_id, run in state.open.items()}
    manifest = state.manifest
    return runs, [state.has_ended(run_id) for run_id in run_ids], manifest.cursor, manifest.low


async def test_a_file_that_is_damaged_anywhere_is_found_out(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        ended, resting = await some_runs(log, tmp_path, client)
    run_ids = [run.id for run in (*ended, *resting)]
    [file] = state_files(tmp_path)
    sound = content(before := await states(log, tmp_path, []), run_ids)
    before.close()
    whole = file.read_bytes()
    chance, discarded = random.Random(7), 0
    for _ in range(150):
        damaged = bytearray(whole)
        for _ in range(chance.choice((1, 40))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        unlink(tmp_path)
        file.write_bytes(damaged)
        said: list[str] = []
        state = await states(log, tmp_path, said)
        try:
            assert content(state, run_ids) == sound, said
        except StateFileError:
            said.append("found out when it was read")
        state.file.close()
        discarded += bool(said)
    assert discarded > 20


async def test_a_file_of_another_journal_or_another_time_is_not_used(log: EventLog, tmp_path: Path) -> None:
    async with Client(log) as client:
        await some_runs(log, tmp_path, client)
        [file] = state_files(tmp_path)
        other = await open_log("memory://?partitions=1")
        async with Client(other) as second:
            await some_runs(other, tmp_path / "other", second)
        [place] = state_files(tmp_path / "other")
        shutil.copy(file, place)
        said: list[str] = []
        state = await states(other, tmp_path / "other", said)
        assert len(state.open) == 4
        assert "made anew" in said[0]
        state.close()
        said.clear()
        file_state = await states(log, tmp_path, said)
        file_state.manifest.last_event_id = "of a journal that was put back from a copy"
        file_state.close()
        again = await states(log, tmp_path, said)
        assert len(again.open) == 4
        assert "another record where it was read to" in said[0]
        again.close()
        await other.close()


def test_a_file_that_a_paused_owner_still_has_is_left_to_it_and_the_new_one_writes_another(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    identity = Identity("journal", "id", 0)
    paused = open_state_file(tmp_path / "0.db", identity, said.append)
    owner = open_state_file(tmp_path / "0.db", identity, said.append)
    assert owner.path not in (None, paused.path)
    owner.manifest.cursor = 7
    owner.commit()
    paused.commit()  # it wakes up, and does not know better
    paused.close()
    owner.commit()
    owner.close()
    again = open_state_file(tmp_path / "0.db", identity, said.append)
    assert again.manifest.cursor == 7
    assert [path.name for path in tmp_path.glob("*.db")] == [again.path.name if again.path else ""]
    again.close()
    assert said == []


async def test_a_disk_without_room_stops_no_run(
    log: EventLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: StateFile) -> None:
        if self.path is not None:
            raise ProjectionError("disk full")

    monkeypatch.setattr(StateFile, "commit", full)
    monkeypatch.setattr(state_keeper, "WRITE_S", 0.01)
    async with Client(log) as client:
        life = Life(log, agent(), tmp_path)
        async with life.worker:
            await eventually(lambda: any("disk full" in line for line in life.said))
            runs = [await client.start("sample", {"asks": False}) for _ in range(5)]
            for run in runs:
                assert (await run.result(timeout=PATIENCE_S))["value"] == "done"


async def executed(client: Client, key: str) -> int:
    run = await client.start("sample", {"asks": False}, idempotency_key=key)
    await run.result(timeout=PATIENCE_S)
    return sum([event.event_type == "run.started" async for event in run.events(follow=False)])


@pytest.mark.parametrize("loses_file", [True, False])
async def test_ended_runs_are_known_within_the_bounds(
    log: EventLog, tmp_path: Path, loses_file: bool
) -> None:
    clock = VirtualClock()
    async with Client(log) as client:
        for number, bounds in enumerate((Bounds(seen_count=3), Bounds(seen_s=10 * DAY_S))):
            home = tmp_path / str(number)

            async def lives(*keys: str, bounds: Bounds = bounds, home: Path = home) -> Counter[str]:
                BEGUN.clear()
                async with Life(
                    log, agent(), home, seen_for=bounds.seen_s, seen_count=bounds.seen_count, clock=clock
                ).worker:
                    for key in keys:
                        run = await client.start("sample", {"asks": False}, idempotency_key=key)
                        await run.result(timeout=PATIENCE_S)
                    last = await client.start("sample", {"asks": False})  # behind them: they were looked at
                    await last.result(timeout=PATIENCE_S)
                if loses_file:
                    unlink(home)
                return Counter(
                    {
                        key: BEGUN[(await client.start("sample", {"asks": False}, idempotency_key=key)).id]
                        for key in keys
                    }
                )

            a, b, c, d = (f"{letter}{number}" for letter in "abcd")
            assert await lives(a, b) == {a: 1, b: 1}
            assert await lives(a, b) == {a: 0, b: 0}
            if bounds.seen_count == 3:
                assert await lives(c, d) == {c: 1, d: 1}
            else:
                clock.advance(11 * DAY_S)
                assert await lives(c) == {c: 1}
            assert (await lives(a))[a] == 1, "forgotten: it is another run"


@pytest.mark.parametrize("error", [StateFileError("told to"), ProjectionError("told to")])
async def test_a_state_that_breaks_loses_no_command_that_waits(
    log: EventLog, tmp_path: Path, error: ProjectionError
) -> None:
    GATES[:] = [asyncio.Event()]
    async with Client(log) as client:
        life = Life(log, agent(), tmp_path, concurrency=1)
        async with life.worker:
            runs = [await client.start("sample", {"asks": False}) for _ in range(20)]
            await eventually(lambda: life.tenures)
            [owner] = life.tenures
            await eventually(lambda: owner.admission.queued == 19)
            owner.keeper.broke(error)
            GATES[0].set()
            for run in runs:
                assert (await run.result(timeout=PATIENCE_S))["value"] == "done"
            types = [event.event_type async for event in runs[7].events(follow=False)]
            assert types.count("run.started") == 1


async def test_a_command_that_has_waited_for_half_of_what_an_inbox_keeps_is_taken_out_of_it(
    tmp_path: Path,
) -> None:
    BEGUN.clear()
    clock = VirtualClock()
    log = await open_log("memory://?partitions=1", clock=clock)
    GATES[:] = [asyncio.Event()]
    async with Client(log, clock=clock) as client:
        life = Life(log, agent(), tmp_path, concurrency=1, clock=clock)
        async with life.worker:
            runs = [await client.start("sample", {"asks": False}) for _ in range(5)]
            await eventually(lambda: sum(BEGUN.values()) == 1)
            await reached(runs[0], "run.started")
            clock.advance(6 * DAY_S)
            owner = life.tenures[0]
            owner.admission.wake()
            clock.advance(2 * DAY_S)
            owner.admission.wake()
            for run in runs:
                await reached(run, "run.started")
            assert sum(BEGUN.values()) == 1, "there is one slot"
            life.kill()
        unlink(tmp_path)
        inbox = log.topology.inbox("sample")
        await log.truncate(inbox, await log.end(inbox))
        GATES[0].set()
        async with Life(log, agent(), tmp_path, concurrency=1, clock=clock).worker:
            for run in runs:
                assert (await run.result(timeout=PATIENCE_S))["value"] == "done"
    await log.close()


async def test_a_worker_on_a_log_in_memory_keeps_no_file_of_it(log: EventLog, tmp_path: Path) -> None:
    async with Worker(log, [agent()], home=tmp_path), Client(log) as client:
        run = await client.start("sample", {"asks": False})
        assert (await run.result(timeout=PATIENCE_S))["value"] == "done"
    assert state_files(tmp_path) == []


def test_a_file_whose_maker_died_at_once_is_made_by_the_next(tmp_path: Path) -> None:
    path, said = tmp_path / "0.db", list[str]()
    connect(path).close()
    assert path.stat().st_size > 0
    file = open_state_file(path, Identity("journal", "id", 0), said.append)
    assert file.path == path
    assert said == []
    file.close()


def test_a_file_of_another_format_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, identity, said = tmp_path / "0.db", Identity("journal", "id", 0), list[str]()
    older = open_state_file(path, identity, pytest.fail)
    older.manifest.cursor = 7
    older.commit()
    older.close()
    monkeypatch.setattr(StateFile, "LAYOUT", replace(StateFile.LAYOUT, format=0))
    file = open_state_file(path, identity, said.append)
    assert (file.path, file.manifest.cursor) == (path, 0)
    assert said == [f"{path} has the format 5, not 0. The journal is read from its beginning."]
    file.close()


def test_a_partition_in_which_nothing_happens_writes_nothing(tmp_path: Path) -> None:
    identity = Identity("journal", "id", 0)
    file = open_state_file(tmp_path / "state.db", identity, pytest.fail)
    writes: list[str] = []
    file._db.set_trace_callback(writes.append)
    file.manifest.position = 7
    for _ in range(3):
        file.commit()
    assert sum("COMMIT" in write for write in writes) == 1
    file.manifest.counts["open"] = file.change("INSERT INTO open VALUES (?, ?, ?)", ("run", b"[]", b"sum"))
    file.commit()
    assert sum("COMMIT" in write for write in writes) == 2
    file.close()
    again = open_state_file(tmp_path / "state.db", identity, pytest.fail)
    assert again.manifest.position == 7
    assert again.read("SELECT run_id FROM open") == [("run",)]
    again.close()
