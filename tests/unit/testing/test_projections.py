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
from noesium_stream.testing import check
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
    assert check(Total(), [*EVENTS, noted(100)]) == 21
    assert check(Total(), []) == 0
    assert check(History(), EVENTS) == {"a": [2, 4, 6], "b": [1, 3, 5]}
    assert check(History(), [*EVENTS, counted(0, "a")]) == {"b": [1, 3, 5]}
    assert check(Pairs(), EVENTS) == {"a": 3, "all": 6, "b": 3}


def test_an_impure_one_is_an_error() -> None:
    class Late(Total):
        def apply(self, state: int, event: EventEnvelope) -> int:
            return time.time_ns()

    with pytest.raises(ImpureProjectionError, match="`apply` of the projection total reads the clock"):
        check(Late(), EVENTS)


def test_the_order_of_a_set_is_found_with_another_hash_seed() -> None:
    assert sorted(check(Words(), EVENTS)) == [f"word{n}" for n in range(1, 7)]
    code = (
        "from noesium_stream.testing import check\n"
        "from tests.unit.testing.test_projections import EVENTS, Total, Words\n"
        "assert check(Total(), EVENTS, seeds=True) == 21\n"
        "check(Words(), EVENTS, seeds=True)\n"
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
        check(Local(), EVENTS, seeds=True)
