"""Bugs that are planted in the worker, one at a time, are caught by the simulation."""

from __future__ import annotations

import json

import pytest

from tests.sim.plants import PLANTS
from tests.sim.test_sim import sim

SHARES = 16
"""In a process each: to start one takes as long as to play twenty seeds."""


@pytest.mark.parametrize("share", range(SHARES))
def test_planted_bugs_are_caught(share: int) -> None:
    names = sorted(PLANTS)[share::SHARES]
    ended = sim("--planted", "--only", *names)
    caught = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [one["planted"] for one in caught] == names, ended.stdout + ended.stderr
    assert [one["planted"] for one in caught if one["caught"] is None] == []
    assert ended.returncode == 0
