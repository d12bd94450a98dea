"""The guide "tool", followed from top to bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("tool", tmp_path)
    said = reader.bash("settled").stdout
    assert "900 cents for 4711" in said
    assert "refund" in said
    assert "pay:order:{order}" in said
    said = reader.bash("coded").stdout
    assert "900 cents for 4711" in said
    assert said.count("tool.invoked") == said.count("tool.completed") == 4
    reader.end()
