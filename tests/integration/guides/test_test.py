"""The guide "test", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("test", tmp_path)
    # The copy has this repository's own `-n auto`, which a reader's project lacks: 3 processes for a test.
    reader.env["PYTEST_ADDOPTS"] = "-n 0"
    assert "1 passed" in reader.bash("rehearsal").stdout
    assert reader.bash("golden").stdout.count("1 passed") == 2
    changed = reader.bash("changed", code=1).stdout
    assert reader.output("step 1").strip() in changed
    assert "ended without the 1. approval.requested" in changed
    assert "2 failed" in changed
    assert "2 passed" in reader.bash("undone").stdout
    reader.end()
