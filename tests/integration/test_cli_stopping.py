"""Processes that are told to stop while a run does something outside: its result is recorded, or they end."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

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
SOON_S = 10.0


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "till.py").write_text(TILL, encoding="utf-8")
    return Folder(tmp_path)


def begun(folder: Folder, process: Running) -> None:
    process.wait_for(lambda _: (folder.path / "begun").exists())


@pytest.mark.parametrize(("command", "number"), [("worker", signal.SIGTERM), ("run", signal.SIGINT)])
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
        told = time.monotonic()
        run.wait()
        assert time.monotonic() - told < SOON_S
        assert any("1 effect did not end in time" in line for line in run.err)
