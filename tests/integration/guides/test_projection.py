"""The guide "projection", followed from top to bottom."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.pages import LONG_S, Reader, read_guide


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return read_guide("projection", tmp_path)


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(reader: Reader) -> None:
    reader.bash("a run")
    assert reader.bash("fold").stdout == "{'run.completed': 1}\n"
    assert reader.bash("own events").stdout == "1250\n[('ada', 1250)]\n{'ada': 1250, 'grace': 300}\n"
    follows_is_killed_and_changed(reader)
    is_redriven_and_travels(reader)
    inside_a_program_and_shipped(reader)
    reader.end()


def follows_is_killed_and_changed(reader: Reader) -> None:
    first, header, row = reader.bash("project once").stdout.splitlines()
    both = f"{2 * int(first)}\n"  # the researcher's runs and the librarian's, of a question asked twice
    assert row.split()[:2] == ["outcomes", "v1"]
    assert "lag" in header
    with reader.terminal("project") as killed, reader.running("project", "outcomes:Outcomes") as other:
        for process in (killed, other):
            process.wait_for_error_line("Ctrl-C ends it", LONG_S)
        killed.signal(signal.SIGKILL)
        reader.shell('noesium run agents.researcher "What is a projection?"')
        read = "noesium state outcomes run.completed"
        other.wait_for(lambda _: reader.shell(read).stdout == both, LONG_S)
        other.signal(signal.SIGTERM)
        assert other.wait() == 0
    assert reader.bash("project version 2").stdout == both + both


def is_redriven_and_travels(reader: Reader) -> None:
    held = reader.bash("broken")
    assert "KeyError" in held.stdout
    mended = reader.bash("dlq")
    assert "0 dead letters stay" in mended.stderr
    assert dict(line.split() for line in mended.stdout.splitlines()).keys() == {"librarian", "researcher"}

    travelled = reader.bash("snapshots")
    assert any(line.startswith("depot/outcomes/v2/") for line in travelled.stdout.splitlines())
    elsewhere = "noesium state outcomes completed --state elsewhere"
    assert reader.shell(elsewhere).stdout == reader.shell("noesium state outcomes completed").stdout


def inside_a_program_and_shipped(reader: Reader) -> None:
    for line in reader.bash("attached").stdout.splitlines():
        _, ended, count, _ = line.split()
        assert ended == "run.completed"
        assert int(count) >= 4

    assert reader.bash("bills").stdout.splitlines()[-1] == "1850"

    rows = json.loads(reader.bash("shipped").stdout)
    runs = {key: row for key, row in rows.items() if row["kind"] == "run"}
    listed = json.loads(reader.shell("noesium runs --all --limit 1000 --json").stdout)
    assert {run["run_id"] for run in listed if run["status"] == "completed"} <= runs.keys()
    assert rows["agent/researcher"]["starts"] >= 1
    found = [line.partition(" ") for line in reader.bash("search").stdout.splitlines()]
    assert found
    assert all(key in runs and text for key, _, text in found)
