"""Bugs that are planted in the worker, one at a time, are caught by the simulation.

A sixth of them; all with `-m "soak or not soak"`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sim.plants import PLANTS
from tests.sim.test_sim import sim
from tests.support.chosen import chosen, one_of


@pytest.fixture(scope="module")
def caught(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The first catch of each bug, by its name; one process plays them all, for a process starts slowly."""
    wanted = sorted(name for (name,) in chosen(request, "name"))
    ended = sim("--planted", "--only", *wanted)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["planted"] for line in lines] == wanted, ended.stdout + ended.stderr
    found = {line["planted"]: line["caught"] for line in lines}
    assert ended.returncode == int(None in found.values())
    return found


@pytest.mark.parametrize("name", one_of(6, sorted(PLANTS)))
def test_a_planted_bug_is_caught(caught: dict[str, Any], name: str) -> None:
    assert caught[name] is not None
