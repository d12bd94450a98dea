"""`noesium wait` on runs of other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import Folder, Running


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.with_toys(tmp_path)


def begun(folder: Folder, process: Running) -> str:
    """The id of the run that a `noesium run` has begun."""
    return process.wait_for_error_line("run ").split()[1]


def test_who_waits_gets_what_the_run_answers_and_so_does_who_comes_later(folder: Folder) -> None:
    with folder.running("run", "agents.echo", "wait") as asked:
        run_id = begun(folder, asked)
        with folder.running("wait", run_id) as waiting:
            short = folder.run("wait", run_id, "--timeout", "0.2")
            assert short.returncode == 1
            assert "has no outcome after 0.2 s" in short.stderr
            folder.ok("signal", run_id, "go", '"now"')
            assert asked.wait() == 0
            assert waiting.wait() == 0
            assert waiting.out == asked.out
    later = folder.json("wait", run_id[:18], "--json")
    assert later["run_id"] == run_id


def test_a_run_that_failed_or_is_not_there_is_one_line(folder: Folder) -> None:
    failed = folder.run("run", "agents.echo", "fail")
    run_id = failed.stderr.split()[1]
    done = folder.run("wait", run_id)
    assert done.returncode == failed.returncode == 1
    assert done.stderr.splitlines()[0] in failed.stderr
    missing = folder.run("wait", "00000000")
    assert missing.returncode == 2
    assert "Traceback" not in done.stderr + missing.stderr
