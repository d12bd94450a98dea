"""The guide "skill", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("skill", tmp_path)
    assert "word-count" in reader.bash("checked").stdout
    assert "3" in reader.bash("counted").stdout
    assert "On rain: rain is wet and" in reader.bash("briefed").stdout
    titled = reader.bash("titled").stdout
    assert "rain is wet" in titled
    assert "snow is wet" in titled
    reader.end()
