"""The guide "a2a", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.support.pages import LONG_S, Reader, read_guide


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return read_guide("a2a", tmp_path)


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(reader: Reader) -> None:
    with reader.terminal("desk worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        with reader.terminal("desk open") as server:
            server.wait_for_error_line("serving A2A at http://127.0.0.1:", LONG_S)
            asked = reader.bash("desk asked").stdout.splitlines()
            assert asked[:2] == ["9 to 17", "Refund 70?"]
            assert "70" in "".join(asked[2:])
            token, line = reader.bash("token").stdout.splitlines()
            assert len(token) > 40
            assert line.endswith('" = "alice"')
            assert '"closed"' in reader.bash("visitor").stdout
            server.signal()
            assert server.wait() == INTERRUPTED
        worker.signal()
        assert worker.wait() == INTERRUPTED
    reader.end()
