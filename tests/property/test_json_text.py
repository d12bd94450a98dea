"""JSON text of any writer: accepted and refused as by the standard library with the rules spelled out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noesium_stream.errors import EventValidationError
from noesium_stream.event.payload.value import parse_json

BLANKS = st.sampled_from(["", "", " ", "\n\t"])
PIECES = ["a", ":", "e", ".", "1", ",", "{", "true", "é", "1e30", "9" * 22, "\\\\", '\\"', "\\n", "\\/"]
ESCAPES = ["\\u003a", "\\u003A", "\\u003b", "\\u0041", "\\\\u003a", "\\ud83d\\ude00"]
STRINGS = st.lists(st.sampled_from(PIECES + ESCAPES), max_size=4).map(lambda parts: f'"{"".join(parts)}"')
DIGITS = st.from_regex(r"-?[1-9][0-9]{0,24}", fullmatch=True)
EDGES = st.sampled_from(["0", "-0", "0E+5", str(2**64), str(2**64 - 1), str(-(2**63)), str(-(2**63) - 1)])
NUMBERS = st.one_of(
    EDGES, DIGITS, st.tuples(DIGITS, st.sampled_from([".0", ".5e7", "e1", "E-3"])).map("".join)
)


def array(items: list[tuple[str, str]]) -> str:
    return "[" + ",".join(f"{blank}{item}{blank}" for blank, item in items) + "]"


def object_(items: list[tuple[str, str, str]]) -> str:
    return "{" + ",".join(f"{key}{blank}:{blank}{item}" for blank, key, item in items) + "}"


TEXTS = st.recursive(
    st.one_of(NUMBERS, STRINGS, st.sampled_from(["true", "false", "null"])),
    lambda inner: st.one_of(
        st.lists(st.tuples(BLANKS, inner), max_size=4).map(array),
        st.lists(st.tuples(BLANKS, STRINGS, inner), max_size=4).map(object_),
    ),
    max_leaves=12,
)


def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(items)) != len(items):
        raise ValueError("twice")
    return dict(items)


def fitting(digits: str) -> int:
    number = int(digits)
    if not -(2**63) <= number < 2**64:
        raise ValueError("64 bits")
    return number


@pytest.mark.parametrize("chunk", [65_536, 3])
def test_text_is_read_and_refused_by_the_rules(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noesium_stream.event.payload.value._CHUNK", chunk)

    @settings(deadline=None, max_examples=500)
    @given(TEXTS)
    def judge(text: str) -> None:
        try:
            expected = repr(json.loads(text, object_pairs_hook=unique, parse_int=fitting))
        except ValueError:
            expected = "refused"
        try:
            found = repr(parse_json(text.encode(), "payload"))
        except EventValidationError:
            found = "refused"
        assert found == expected

    judge()
