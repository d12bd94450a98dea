"""The guide "upgrade", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("upgrade", tmp_path)
    assert reader.bash("moved").stdout == "{'amount': '12.5 EUR paid', 'by': 'Ada'}\n"
    reader.bash("begin")
    assert "can be moved by a migration before step 1: 1.0.0 to 2.0.0" in reader.bash("open").stdout
    with reader.terminal("worker") as worker:
        worker.wait_for_error_line("at work on sqlite:///", LONG_S)
        printed = reader.bash("approve").stdout
        assert "run.migrated" in printed
        assert "run.completed" in printed
        assert "settle" in printed
    reader.end()
