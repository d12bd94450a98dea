"""Bugs that are planted in the worker, one at a time, are caught by the simulation."""

from __future__ import annotations

import json

import pytest

from tests.sim.planted import PLANTS
from tests.sim.test_sim import sim


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_caught(name: str) -> None:
    ended = sim("--planted", "--only", name)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    caught = json.loads(ended.stdout)["caught"]
    assert caught["faults"]
