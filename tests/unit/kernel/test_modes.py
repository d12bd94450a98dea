"""What the modes ask of a step: two executions compared, models that say how they sample."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.config import ExecutionMode
from noesium_stream.errors import StrictModeError
from noesium_stream.kernel.modes import (
    ModelParameters,
    check_model_parameters,
    compare_runs,
    current_mode,
    in_mode,
)

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(-2, 2).map(lambda x: x + 0.0)
    | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=12,
)


@given(JSON, JSON)
def test_two_values_differ_exactly_when_their_canonical_bytes_differ(first: Any, second: Any) -> None:
    same = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
    assert (compare_runs(first, second) is None) == same


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (
            {"items": [{"score": 1}, {"score": 0.1}]},
            {"items": [{"score": 1}, {"score": 0.2}]},
            "delta.items[1].score: 0.1 then 0.2",
        ),
        ({"a": 1}, {}, "delta.a: 1 then missing"),
        ({}, {"a": "x"}, 'delta.a: missing, then "x"'),
        ({"a": [1, 2]}, {"a": [1]}, "delta.a: 2 items then 1"),
        ({"a": 1}, {"a": 1.0}, "delta.a: 1 then 1.0"),
        ({"a": 1}, {"a": True}, "delta.a: 1 then true"),
        (None, {}, "delta: null then {}"),
        ({"a": [1]}, {"a": {"0": 1}}, 'delta.a: [1] then {"0": 1}'),
    ],
)
def test_a_difference_is_told_with_its_path_and_both_values(first: Any, second: Any, difference: str) -> None:
    assert compare_runs(first, second) == difference


def test_the_order_of_keys_is_no_difference() -> None:
    assert compare_runs({"a": 1, "b": 2}, {"b": 2, "a": 1}) is None


def test_a_long_text_is_shown_where_it_begins_to_differ() -> None:
    difference = compare_runs({"a": "x" * 5_000 + "left"}, {"a": "x" * 5_000 + "right"})
    assert difference is not None
    assert "left" in difference
    assert "right" in difference
    assert "from character 4980" in difference
    assert len(difference) < 300


def test_a_complete_model_call_passes_in_every_mode_and_an_incomplete_one_but_not_in_strict() -> None:
    complete = ModelParameters("p:m", version="1", temperature=0, seed=0)
    for mode in ExecutionMode:
        check_model_parameters(complete, mode)
    for mode in (ExecutionMode.PRAGMATIC, ExecutionMode.SANDBOX):
        check_model_parameters(ModelParameters(None), mode)


@pytest.mark.parametrize("name", ["model", "version", "temperature", "seed"])
def test_each_missing_parameter_is_an_error_in_strict_that_names_it(name: str) -> None:
    known = {"model": "p:m", "version": "1", "temperature": 0, "seed": 7, name: None}
    with pytest.raises(StrictModeError, match=rf"does not say its {name},") as caught:
        check_model_parameters(ModelParameters(**known), ExecutionMode.STRICT)  # type: ignore[arg-type]
    assert f"{name}=…" in str(caught.value.hint)


def test_several_missing_parameters_are_named_together() -> None:
    with pytest.raises(StrictModeError, match="its version, temperature and seed, which"):
        check_model_parameters(ModelParameters("p:m"), ExecutionMode.STRICT)


async def test_the_mode_goes_with_tasks_and_threads_and_ends_with_its_block() -> None:
    with in_mode(ExecutionMode.STRICT):
        modes = [current_mode(), await asyncio.to_thread(current_mode)]

        async def child() -> ExecutionMode:
            return current_mode()

        modes.append(await asyncio.create_task(child()))
    assert modes == [ExecutionMode.STRICT] * 3
    assert current_mode() is ExecutionMode.PRAGMATIC
