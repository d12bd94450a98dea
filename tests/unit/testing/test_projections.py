"""One line in a test tells whether a projection is pure."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from noesium_stream.errors import ImpureProjectionError, ProjectionError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection
from noesium_stream.testing import check_projection
from tests.support.events import counted, noted
from tests.support.folding import History


class Total(BaseProjection[int]):
    name = "total"
    event_types = ("demo.counted",)

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["n"])


class Words(BaseProjection[list[str]]):
    """Keeps the order in which a set gives its items."""

    name = "words"

    def initial_state(self) -> list[str]:
        return []

    def apply(self, state: list[str], event: EventEnvelope) -> list[str]:
        return list({*state, event.payload["text"]})


class Pairs(BaseProjection[int]):
    name = "pairs"
    on_error = "stop"

    def initial_state(self) -> int:
        return 0

    def keys(self, event: Any) -> tuple[str, ...]:
        return (str(event.partition_key), "all")

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1


EVENTS = [counted(n, "ab"[n % 2], text=f"word{n}") for n in range(1, 7)]


def test_a_pure_projection_gives_its_state() -> None:
    assert check_projection(Total(), [*EVENTS, noted(100)]) == 21
    assert check_projection(Total(), []) == 0
    assert check_projection(History(), EVENTS) == {"a": [2, 4, 6], "b": [1, 3, 5]}
    assert check_projection(History(), [*EVENTS, counted(0, "a")]) == {"b": [1, 3, 5]}
    assert check_projection(Pairs(), EVENTS) == {"a": 3, "all": 6, "b": 3}


def test_an_impure_one_is_an_error() -> None:
    class Late(Total):
        def apply(self, state: int, event: EventEnvelope) -> int:
            return time.time_ns()

    with pytest.raises(ImpureProjectionError, match="`apply` of the projection total reads the clock"):
        check_projection(Late(), EVENTS)


def test_the_order_of_a_set_is_found_with_another_hash_seed() -> None:
    assert sorted(check_projection(Words(), EVENTS)) == [f"word{n}" for n in range(1, 7)]
    code = (
        "from noesium_stream.testing import check_projection\n"
        "from tests.unit.testing.test_projections import EVENTS, Total, Words\n"
        "assert check_projection(Total(), EVENTS, seeds=True) == 21\n"
        "check_projection(Words(), EVENTS, seeds=True)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ImpureProjectionError: The projection words has another state of ''" in run.stderr
    assert "state.0: 'word" in run.stderr


def test_what_cannot_be_handed_over_is_said() -> None:
    class Local(Total):
        pass

    with pytest.raises(ProjectionError, match="cannot be handed to another process"):
        check_projection(Local(), EVENTS, seeds=True)
