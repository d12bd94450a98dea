"""The guide "mcp", followed from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.support.pages import LONG_S, read_guide
from tests.support.sandboxes import sandbox_named


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("mcp", tmp_path)
    assert json.loads(reader.bash("clerk").stdout)["said"] == "sent"
    [letters] = tmp_path.rglob("letters")
    assert letters.read_text() == "Ada is customer 3: Welcome!\n"
    sandbox_named("bubblewrap")
    assert reader.bash("walled").stdout.endswith("Grace is customer 5: Welcome!\n")
    saved = reader.save("remote.py")
    reader.shell(f"python {saved.name}")
    with reader.terminal("office worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        with reader.terminal("office open") as server:
            server.wait_for_error_line("serving MCP at http://127.0.0.1:", LONG_S)
            said = reader.bash("office called").stdout.splitlines()
            assert said == ["9 to 17", "Refund 70?", "{'paid': 70}"]
            server.signal()
            assert server.wait() == INTERRUPTED
        worker.signal()
        assert worker.wait() == INTERRUPTED
    reader.end()
