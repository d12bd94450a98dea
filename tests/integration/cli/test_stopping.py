"""Processes that are told to stop while a run does something outside: its result is recorded, or they end."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.log import open_log
from noesium_stream.log.broker.local import LocalBroker
from tests.support.command import Folder, Running

TILL = """
import time
from pathlib import Path
from langgraph.graph import START, StateGraph
from noesium_stream.kernel import current_step

def pay():
    Path("begun").open("a").write("once ")
    while not Path("go").exists():
        time.sleep(0.01)
    return "paid"

async def till(state):
    return {"receipt": await current_step().effect("pay", pay)}

graph = StateGraph(dict)
graph.add_node("till", till)
graph.add_edge(START, "till")
"""
SOON_ON_A_BUSY_MACHINE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "till.py").write_text(TILL, encoding="utf-8")
    return Folder(tmp_path)


def begun(folder: Folder, process: Running) -> None:
    process.wait_for(lambda _: (folder.path / "begun").exists())


@pytest.mark.parametrize(
    ("command", "number"),
    [("worker", signal.SIGTERM), ("run", signal.SIGINT), ("run", signal.SIGTERM)],
)
def test_a_process_that_is_told_to_stop_records_what_its_thread_does(
    folder: Folder, command: str, number: int
) -> None:
    with folder.running("run", "till:graph", "--input", "{}", "--key", "k") as first:
        if command == "worker":
            begun(folder, first)
            first.signal(signal.SIGKILL)
            first.wait()
            (folder.path / "begun").unlink()
            with folder.running("worker", "till:graph") as worker:
                effect = decided(folder, worker)
                folder.ok("effect", "resolve", effect["run_id"], effect["effect_id"], "--retry")
                stopped(folder, worker, number)
        else:
            stopped(folder, first, number)
    assert folder.json("effects", "--json") == []
    folder.ok("run", "till:graph", "--input", "{}", "--key", "k")
    assert (folder.path / "begun").read_text() == "once "


def decided(folder: Folder, process: Running) -> dict[str, str]:
    found: list[dict[str, str]] = []

    def there(_: Running) -> bool:
        found[:] = folder.json("effects", "--json")
        return bool(found)

    process.wait_for(there)
    return found[0]


def stopped(folder: Folder, process: Running, number: int) -> None:
    begun(folder, process)
    process.signal(number)
    process.wait_for_error_line("waiting for 1 effect under way")
    (folder.path / "go").touch()
    process.wait()


def test_a_thread_without_an_end_does_not_keep_a_process_from_ending(folder: Folder) -> None:
    with folder.running("run", "till:graph", "--input", "{}") as run:
        begun(folder, run)
        run.signal(signal.SIGINT)
        run.wait()
        assert any("1 effect did not end in time" in line for line in run.err)


def test_a_thread_that_outlives_a_worker_that_has_stopped_does_not_change_how_it_ended(
    folder: Folder,
) -> None:
    lasting = "import threading\nthreading.Thread(target=lambda: time.sleep(60)).start()\n"
    (folder.path / "lasting.py").write_text(TILL + lasting, encoding="utf-8")
    with folder.running("worker", "lasting:graph") as worker:
        worker.wait_for_error_line("at work")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.err
        assert worker.err[-1] == "stopped"


class LogAway:
    """A log that stops answering, and comes back."""

    def __init__(self, url: str, away: Callable[[], object], back: Callable[[], object]) -> None:
        self.url, self.away, self.back = url, away, back


@pytest.fixture(params=["kafka stands still", "sqlite is locked"])
def log(request: pytest.FixtureRequest, folder: Folder) -> Iterator[LogAway]:
    if request.param == "sqlite is locked":
        path = folder.path / "log.db"
        url = f"sqlite:///{path}?partitions=1"
        asyncio.run(_made(url))
        other = sqlite3.connect(path, isolation_level=None, timeout=30)
        yield LogAway(url, lambda: other.execute("BEGIN IMMEDIATE"), lambda: other.execute("ROLLBACK"))
        return other.close()
    broker: LocalBroker = request.getfixturevalue("own_broker")
    url = f"{broker.up().url}?partitions=1"
    pid = broker.status().pid
    assert pid is not None

    def send(number: int) -> Callable[[], object]:
        return lambda: os.kill(pid, number)

    yield LogAway(url, send(signal.SIGSTOP), send(signal.SIGCONT))
    return None


async def _made(url: str) -> None:
    await (await open_log(url)).close()


async def _started(url: str) -> str:
    log = await open_log(url)
    async with Client(log) as client:
        run = await client.start("till", {}, idempotency_key="k")
    await log.close()
    return run.id


def test_a_worker_that_is_told_to_stop_while_the_log_is_away_leaves_in_time_and_the_next_one_goes_on(
    folder: Folder, log: LogAway
) -> None:
    with folder.running("worker", "till:graph", "--log", log.url) as worker:
        worker.wait_for_error_line("at work")
        run_id = asyncio.run(_started(log.url))
        begun(folder, worker)
        log.away()
        (folder.path / "go").touch()
        worker.signal(signal.SIGTERM)
        told = time.monotonic()
        assert worker.wait() == 3
        assert time.monotonic() - told < SOON_ON_A_BUSY_MACHINE_S
        assert any("left without handing over: till is giving up its partitions" in one for one in worker.err)
        assert not any("Traceback" in line for line in worker.err)
        log.back()
    with folder.running("worker", "till:graph", "--log", log.url) as worker:
        effects: list[dict[str, str]] = []

        def unknown(_: Running) -> bool:
            effects[:] = folder.json("effects", "--json", "--log", log.url)
            return bool(effects)

        worker.wait_for(unknown)
        effect = effects[0]["effect_id"]
        folder.ok("effect", "resolve", run_id, effect, "--result", '"paid"', "--log", log.url)
        assert '"paid"' in folder.ok("wait", run_id, "--log", log.url)
    assert (folder.path / "begun").read_text() == "once "


def test_a_worker_without_work_that_is_told_to_stop_while_the_log_is_away_has_nothing_to_hand_over(
    folder: Folder, log: LogAway
) -> None:
    with folder.running("worker", "till:graph", "--log", log.url) as worker:
        worker.wait_for_error_line("at work")
        log.away()
        worker.signal(signal.SIGTERM)
        told = time.monotonic()
        code = worker.wait()
        assert time.monotonic() - told < SOON_ON_A_BUSY_MACHINE_S
        log.back()
        # On a machine that is busy all of that may take too long; then it says so.
        assert code == (0 if worker.err[-1] == "stopped" else 3), worker.err
