"""The guide "langchain", followed from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide
from tests.support.sandboxes import sandbox_named


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    sandbox_named("bubblewrap")
    reader = read_guide("langchain", tmp_path)
    said = reader.bash("asked").stdout
    assert "The oil is paid back: 900 cents." in said
    shown = said.partition("clerk 1.0.0 ")[2]  # `noesium show` tells every call once
    calls = re.findall(r"· (\S+)", shown)
    assert sorted(calls) == ["model:scripted:Scripted"] * 3 + ["price", "price", "refund"]
    assert "as recorded (completed)" in said
    deep = reader.bash("deep").stdout
    calls = re.findall(r"· (\S+)", deep.partition("deep 1.0.0 ")[2])
    assert sorted(calls) == ["execute"] + ["model:programmer:Programmer"] * 3 + ["write_file"]
    assert '"It is 5050."' in deep
    assert "as recorded (completed)" in deep
    assert deep.endswith("5050\n")
    reader.end()
