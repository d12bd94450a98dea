"""The guide "sandbox", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide
from tests.support.sandboxes import sandbox_named


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    sandbox_named("bubblewrap")
    reader = read_guide("sandbox", tmp_path)
    said = reader.bash("worked").stdout
    assert said.endswith("3\nthree words here\n")
    assert "Read-only file system" in said
    assert "s3cret" not in said
    assert "'home'" not in said
    assert "Network is unreachable" in said or "Connection refused" in said
    assert "timeout" in said
    counted = reader.bash("counted").stdout
    assert "Read-only file system" in counted
    assert '"words": 3' in counted
    assert counted.splitlines()[-2:] == ["notes.txt", "reports"]
    reader.end()
