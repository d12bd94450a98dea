"""The guide "subagent", followed from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.support.pages import LONG_S, Reader, read_guide


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return read_guide("subagent", tmp_path)


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(reader: Reader) -> None:
    with reader.terminal("till worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        first, second, third = reader.bash("till sold").stdout.splitlines()
        assert (first, second) == ("[3, 7]", "[12]")
        assert "amounts are not negative" in third
        assert "THE SHOP IS CLOSED" in reader.bash("shout").stdout
        states = [json.loads(line) for line in reader.bash("till states").stdout.splitlines()]
        fronts = [one["payload"]["state"] for one in states if one["payload"]["session"] == "front"]
        assert fronts == ["RUNNING"], "three calls met one process"
        worker.signal()
        assert worker.wait() == INTERRUPTED
    reader.end()
