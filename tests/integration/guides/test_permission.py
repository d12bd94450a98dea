"""The guide "permission", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from noesium_stream.cli.exits import INTERRUPTED
from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("permission", tmp_path)
    assert "saved letters/a.txt, sent to ada" in reader.bash("allowed").stdout
    refused = reader.bash("refused")
    assert "save needs 'fs:write:keys/a.txt', and clerk is not granted" in refused.stderr
    dry = reader.bash("dry").stdout
    assert "denied" in dry
    asked = reader.bash("asked").stdout
    assert "saved letters/b.txt, sent to bob" in asked
    with reader.terminal("approver") as approver:
        approver.wait_for_error_line("at work on sqlite:///", LONG_S)
        denied = reader.bash("nobody answers")
        assert "approver has refused the call of send" in denied.stderr
        assert [denied.stdout.count(f'"to": "{name}"') for name in ("bob", "cleo")] == [2, 2]
        approver.signal()
        assert approver.wait() == INTERRUPTED
    reader.end()
