"""The guide "web", followed from top to bottom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("web", tmp_path)
    answer = json.loads(reader.bash("read").stdout)["answer"]
    assert (answer["title"], answer["text"]) == ("Prices", "Tea costs **3** euros.")
    assert reader.bash("shop").stdout == reader.output("builtin:shop")
    reader.end()
