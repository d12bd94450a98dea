"""The guide "goals", followed from top to bottom."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.pages import LONG_S, read_guide, same_tree


@pytest.mark.timeout(LONG_S)
def test_the_guide_works_as_it_is_written(tmp_path: Path) -> None:
    reader = read_guide("goals", tmp_path)
    with reader.terminal("run") as run:
        ends_s = time.monotonic() + LONG_S
        while time.monotonic() < ends_s:
            if "missing" in reader.shell("noesium goals --status blocked || true").stdout:
                break
        assert same_tree(reader.bash("blocked").stdout, reader.output("releaser"))
        said = reader.bash("unblocked").stdout
        assert 'unblocked           reason "the key is there"' in said
        assert "Release 2.0" in said
        assert run.wait() == 0
    reader.end()
