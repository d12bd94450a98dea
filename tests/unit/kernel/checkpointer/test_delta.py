"""Values as trees, and what changed between two of them."""

from __future__ import annotations

import datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from noesium_stream.errors import StateError
from noesium_stream.kernel.checkpointer.delta import apply, diff
from noesium_stream.kernel.checkpointer.values import Values, size_of

VALUES = Values(JsonPlusSerializer())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=20,
)


@given(old=TREES, new=TREES)
@settings(max_examples=500, deadline=None)
def test_a_delta_makes_the_new_tree_of_the_old_one_exactly(old: Any, new: Any) -> None:
    before = orjson.dumps(old)
    delta = orjson.loads(orjson.dumps(diff(old, new)))
    made = apply(old, delta)
    # As text: 1, 1.0 and true are equal in Python, and the order of keys counts too.
    assert orjson.dumps(made) == orjson.dumps(new)
    assert (delta is None) == (before == orjson.dumps(new))
    assert orjson.dumps(old) == before


@given(
    old=st.lists(TREES, min_size=1, max_size=12),
    cut=st.integers(0, 3),
    at=st.integers(0, 12),
    tail=st.lists(TREES, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_lists_that_moved_or_changed_in_the_middle_come_out_exactly(
    old: list[Any], cut: int, at: int, tail: list[Any]
) -> None:
    for new in (old[cut:] + tail, old[:at] + tail + old[at:], old[:at] + tail + old[at + cut :], old[:cut]):
        assert orjson.dumps(apply(old, diff(old, new))) == orjson.dumps(new)


def test_what_is_added_to_a_long_list_is_all_that_a_delta_holds() -> None:
    old = {"messages": ["x" * 100] * 1000, "n": 1}
    appended = {"messages": [*old["messages"], "new"], "n": 2}  # type: ignore[misc]
    delta = {"keys": {"messages": {"keep": 1000, "tail": ["new"]}, "n": {"set": 2}}}
    assert diff(old, appended) == delta


@pytest.mark.parametrize("how", ["window", "replaced", "removed", "inside", "nested"])
def test_other_small_changes_of_a_long_list_are_small_deltas(how: str) -> None:
    old = [{"id": n, "text": "x" * 50, "seen": list(range(50))} for n in range(200)]
    new = {
        "window": [*old[3:], {"id": 200}],
        "replaced": [*old[:100], {"id": -1}, *old[101:]],
        "removed": [*old[:100], *old[101:]],
        "inside": [*old[:100], {**old[100], "text": "y"}, *old[101:], {"id": 200}],
        "nested": [*old[:-1], {**old[-1], "seen": [*range(51)]}],
    }[how]
    delta = diff(old, new)
    assert size_of(delta) < 120
    assert apply(old, delta) == new


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1, 2},
        {1: "a", (2, 3): "b"},
        b"\x00\xff",
        float("inf"),
        2**53,
        -(2**53),
        {"$typed": ["msgpack", "AA=="]},
        datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC),
        UUID(int=7),
        HumanMessage("hello", id="1"),
        [HumanMessage("hello", id="1"), {"deep": [HumanMessage("again", id="2")]}],
        {"plain": [1, 2.0, True, None, "é"]},
    ],
    ids=repr,
)
def test_a_value_comes_back_as_langgraphs_serializer_gives_it_back(value: Any) -> None:
    serde = JsonPlusSerializer()
    tree = orjson.loads(orjson.dumps(VALUES.encode(value, "value")))
    told, expected = VALUES.decode(tree), serde.loads_typed(serde.dumps_typed(value))
    assert told == expected
    assert type(told) is type(expected)


@given(value=TREES)
@settings(deadline=None)
def test_what_json_holds_stays_readable_json(value: Any) -> None:
    tree = VALUES.encode(value, "value")
    assert orjson.dumps(tree) == orjson.dumps(value)
    assert orjson.dumps(VALUES.decode(tree)) == orjson.dumps(value)


def test_a_list_nested_very_deeply_comes_back() -> None:
    value: Any = []
    for _ in range(300):
        value = [value]
    assert VALUES.decode(orjson.loads(orjson.dumps(VALUES.encode(value, "value")))) == value


def test_a_value_that_cannot_be_written_is_named() -> None:
    with pytest.raises(StateError, match=r"channel_values\.lock cannot be saved"):
        VALUES.encode({"a": [open]}, "channel_values.lock")
