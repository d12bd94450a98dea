"""A worker that supervises itself: it is at work again after a kill, and ends when it is told to."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from tests.support.command import Folder, Running

GRAPH = """
from langgraph.graph import START, StateGraph

graph = StateGraph(dict)
graph.add_node("work", lambda state: {"done": True})
graph.add_edge(START, "work")
"""


def processes(worker: Running) -> list[int]:
    """The child processes that have begun to work."""
    return [int(number) for number in re.findall(r"at work on .*process (\d+)", "\n".join(worker.err))]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_worker_is_started_again_until_it_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "toil.py").write_text(GRAPH, encoding="utf-8")
    folder = Folder(tmp_path)
    with folder.running("worker", "toil:graph", "--restart") as worker:
        for count in (1, 2):
            worker.wait_for(lambda _: len(processes(worker)) == count)  # noqa: B023
            os.kill(processes(worker)[-1], signal.SIGKILL)
        worker.wait_for(lambda _: len(processes(worker)) == 3)
        said = [line for line in worker.err if "is started again" in line]
        assert len(said) == 2
        assert all("was ended by SIGKILL: it is started again" in line for line in said)
        assert len(set(processes(worker))) == 3
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.err[-1].endswith("stopped")
        assert not any(map(lives, processes(worker)))


def test_a_mistake_of_its_user_ends_it_at_once(tmp_path: Path) -> None:
    done = Folder(tmp_path).run("worker", "nowhere:graph", "--restart")
    assert done.returncode == 2
    assert "again" not in done.stderr
