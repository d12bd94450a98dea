"""The guide "schedule", followed from top to bottom."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("schedule", tmp_path)
    with reader.terminal("worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        added = reader.bash("added")
        assert "triggered morning" in added.stdout
        assert "no scheduler runs" not in added.stderr
        ends_s = time.monotonic() + LONG_S
        while time.monotonic() < ends_s:
            if reader.shell("noesium schedule list").stdout.count("completed") >= 2:
                break
        listed = reader.bash("listed").stdout
        assert "30 7 * * MON-FRI Europe/Berlin" in listed
        assert "next     " in listed
        assert listed.count("reporter 1.0.0") == 1  # the run that was triggered
        paused = reader.bash("paused").stdout
        assert "note     too loud" in paused
        assert paused.endswith("resumed pulse\nremoved pulse\n")
        assert "digest every 6:00:00 3" in reader.bash("program").stdout
        worker.signal()
        assert worker.wait() == INTERRUPTED
    reader.end()
