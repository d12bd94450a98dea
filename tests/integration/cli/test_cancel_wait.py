"""`noesium cancel --wait` and `noesium show --follow`: a tree to its end, and the exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.client import Client
from noesium_stream.worker import Worker
from tests.support.command import Folder
from tests.support.processes import ROOT
from tests.support.tree_agents import AGENTS, Leaf, Middle, Root, calling
from tests.support.trees import at_work, children

NAMES = [f"tests.support.tree_agents:{agent.__name__}" for agent in AGENTS]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    log = f"sqlite:///{tmp_path}/log.db"
    return Folder(tmp_path, NOESIUM_LOG=log, NOESIUM_HOME=str(tmp_path / "home"), PYTHONPATH=str(ROOT))


def begun(folder: Folder, asked: dict[str, Any], leaves: int = 1, *, done: bool = False) -> str:
    """A run whose leaves have begun, or are done; its workers are gone then."""

    async def begin() -> str:
        url = folder.env["NOESIUM_LOG"]
        async with Worker(url, [Root, Middle, Leaf], home=folder.path), Client(url) as client:
            run = await client.start("root", asked)
            await at_work(client.log, leaves)
            if done:
                for child in await children(client.log, run):
                    await child.signal("go")
                await run.result()
            return run.id

    return asyncio.run(begin())


def test_a_tree_is_cancelled_and_printed_with_the_end_of_each_run(folder: Folder) -> None:
    run_id = begun(folder, calling("middle", calling("leaf", {}, {"hangs": True})), 2)
    with folder.running("worker", *NAMES) as worker:
        worker.wait_for_error_line("at work on")
        done = folder.run("cancel", run_id[:18], "--wait", "--reason", "not\x1b[31m needed")
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines[0] == f"root  {run_id}  cancelled  not\\x1b[31m needed"
        assert [line.split()[:2] for line in lines[1:]] == [["└─", "middle"], ["├─", "leaf"], ["└─", "leaf"]]
        assert all("cancelled  its caller" in line for line in lines[1:])
        # Nobody knows what became of the call, and nobody has asked for it again.
        assert "not stopped:\n  leaf" in done.stderr
        assert "the outcome of pay is unknown" in done.stderr
        again = folder.run("cancel", run_id, "--wait", "--json")
        assert again.returncode == 0
        tree = json.loads(again.stdout)
        assert (tree["ended"], tree["asked"], len(tree["runs"])) == (True, True, 4)
        assert [one["kind"] for one in tree["unstopped"]] == ["effect"]


def test_who_waits_is_told_for_which_runs_and_may_give_up(folder: Folder) -> None:
    run_id = begun(folder, calling("middle", calling("leaf")))
    done = folder.run("cancel", run_id, "--wait", "--timeout", "0.1")
    assert done.returncode == 1
    assert "3 of 3 runs are still open; they end by themselves once they can" in done.stderr
    assert "waits for a worker of root: nobody has partition" in done.stderr
    tree = folder.run("cancel", run_id, "--wait", "--timeout", "0", "--json")
    assert tree.returncode == 1
    assert json.loads(tree.stdout)["ended"] is False


def test_a_run_that_has_ended_by_itself_is_not_cancelled(folder: Folder) -> None:
    run_id = begun(folder, calling("leaf"), done=True)
    done = folder.run("cancel", run_id, "--wait")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Run {run_id} has ended already: completed." in done.stderr
    for option in (["--timeout", "1"], ["--json"]):
        wrong = folder.run("cancel", run_id, *option)
        assert wrong.returncode == 2
        assert "--timeout and --json go with --wait." in wrong.stderr


def test_who_follows_a_tree_may_break_it_off_or_sees_its_end(folder: Folder) -> None:
    run_id = begun(folder, calling("middle", calling("leaf")))
    with folder.running("show", run_id, "--follow") as following:
        following.wait_for(lambda process: any("  leaf" in line for line in process.out))
        os.kill(following.pid, signal.SIGINT)
        assert following.wait() == 130
        assert "Traceback" not in "\n".join(following.err)
    with folder.running("worker", *NAMES) as worker, folder.running("show", run_id, "-f") as following:
        worker.wait_for_error_line("at work on")
        folder.ok("cancel", run_id, "--wait")
        assert following.wait() == 0
        ended = [line for line in following.out if "  cancelled" in line]
    assert any(line.startswith(f"root {run_id[:13]}  cancelled") for line in ended)
