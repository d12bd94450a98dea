"""Bugs that are planted in the worker, one at a time, are caught by the simulation."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from tests.sim.planted import PLANTS
from tests.sim.test_sim import sim


@cache
def caught() -> dict[str, Any]:
    """What was found of each planted bug: a seed and its faults, or None."""
    ended = sim("--planted")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {line["planted"]: line["caught"] for line in lines}


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_caught(name: str) -> None:
    assert caught()[name] is not None, f"python -m tests.sim --planted --only {name}"
