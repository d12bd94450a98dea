"""One line about a value: text first, then messages, then fields; bounded, and without secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from noesium_stream.event.rules.labels import WIDTH, label_of, summary_of


@dataclass
class Order:
    id: int
    paid: bool


class Amount(BaseModel):
    euros: float


class Rude:
    def __repr__(self) -> str:
        raise AssertionError("nobody asks it")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"n": 3, "question": " why \n so "}, "why so"),
        ({"n": 3, "urgent": True, "none": None}, "n=3, urgent=true, none=null"),
        (
            {"items": [1, 2], "one": [1], "order": {"a": 1, "b": 2}},
            "items=[2 items], one=[1 item], order={2 fields}",
        ),
        ({letter: 0 for letter in "abcdef"}, "a=0, b=0, c=0, d=0, 2 more"),
        ({"messages": [{"role": "user", "content": "hello"}]}, "hello"),
        ({"messages": [["user", "good day"]], "n": 1}, "good day"),
        ({"messages": [], "n": 1}, "messages=[0 items], n=1"),
        ({"api_key": 12345, "n": 1}, "api_key=***, n=1"),
        ({"n": 1 << 500}, "n=a large number"),
        ({}, ""),
    ],
)
def test_an_input_in_one_line(value: dict[str, Any], line: str) -> None:
    assert label_of(value) == line


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("a  text", "a text"),
        (7, "7"),
        ([1, 2], "[2 items]"),
        ({"doc": "a.md", "n": 1}, "doc=a.md, n=1"),
        (Order(7, paid=True), "id=7, paid=true"),
        (Amount(euros=1.5), "euros=1.5"),
        (Rude(), "Rude"),
        ({1: Rude()}, "int=Rude"),
        ("postgres://me:password1@host/db", "postgres://***@host/db"),
        ({"at": "postgres://me:" + "x" * 50 + "@host/db"}, "at=postgres://***@host/db"),
        ("\ud800", "?"),
    ],
)
def test_a_value_in_one_line(value: Any, line: str) -> None:
    assert summary_of(value) == line


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_the_value_is_the_line_is_short_and_one(value: Any) -> None:
    for line in (summary_of(value), label_of({"value": value})):
        assert len(line) <= WIDTH
        assert len(line.splitlines()) <= 1
