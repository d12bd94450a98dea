from __future__ import annotations

import json
import math
import struct
import uuid
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings

from noesium_stream.errors import EventValidationError
from noesium_stream.event import canonical_envelope, canonical_json
from noesium_stream.event.payload.canonical import canonical_text
from tests.support.envelopes import canonical_values, envelope
from tests.support.hostile_json import hostile_texts
from tests.support.steps import steps_of


def test_the_example_of_rfc_8785_has_its_bytes() -> None:
    value = json.loads(
        r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "€$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"""
    )
    assert canonical_json(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf16_units_as_rfc_8785_wants_it() -> None:
    keys = ["€", "\r", "\ufb33", "1", "😀", "\x80", "ö"]
    assert list(json.loads(canonical_json(dict.fromkeys(keys, 0)))) == [
        "\r",
        "1",
        "\x80",
        "ö",
        "€",
        "😀",
        "\ufb33",
    ]


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_in_appendix_b_of_rfc_8785(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical_json(number).decode() == text


class Plain(Enum):
    ONE = 1


class Whole(IntEnum):
    ONE = 1


class Word(StrEnum):
    ONE = "one"


@settings(deadline=None)
@given(canonical_values)
def test_every_value_has_the_bytes_of_the_reference(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("first", [0, 0x20, 0x7F, 0x2028, 0xD7FF, 0xE000, 0xFFFE, 0xFFFF, 0x10000, 0x10FFFF])
def test_every_character_has_the_bytes_of_the_reference(first: int) -> None:
    characters = [
        chr(code) for code in range(first, min(first + 0x20, 0x110000)) if not 0xD800 <= code < 0xE000
    ]
    value = {character: characters for character in [*characters, "\ufb33", "😀"]}
    assert canonical_json(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    "value",
    [-0.0, 1.0, 1e16, 1e21, 1e-7, "1.5e3", {"e.": "1.0"}, (1, 2), Whole.ONE, Word.ONE, {Word.ONE: Word.ONE}],
)
def test_what_orjson_writes_otherwise_has_the_bytes_of_the_reference(value: Any) -> None:
    assert canonical_json({"a": ["x", value]}) == rfc8785.dumps({"a": ["x", value]})


@pytest.mark.parametrize("value", [uuid.UUID(int=0), Plain.ONE, b"x", {Plain.ONE: 1}, object()])
def test_what_orjson_writes_and_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(EventValidationError, match=r"value\.a\.0"):
        canonical_json({"a": [value]})


@pytest.mark.parametrize("name", ["objects", "many keys", "backslashes", "strings", "short whole numbers"])
def test_writing_a_hostile_value_takes_steps_for_its_bytes_and_not_for_its_items(name: str) -> None:
    value = json.loads(hostile_texts(1_000_000)[name])
    assert steps_of(lambda: canonical_text(value, "payload")) < 5_000


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (2**53, "value.a.1"),
        (-(2**53), "value.a.1"),
        (math.nan, "value.a.1"),
        (-math.inf, "value.a.1"),
        ({1: 2}, "value.a.1"),
        ({"b": {None: 1}}, "value.a.1.b"),
        (b"x", "value.a.1"),
        ("\udfff", "value.a.1"),
        ({"\udfff": 1}, "value.a.1"),
    ],
)
def test_what_rfc_8785_cannot_write_is_refused_by_its_path(value: Any, field: str) -> None:
    with pytest.raises(EventValidationError) as caught:
        canonical_json({"a": [0, value]})
    assert caught.value.field == field


def test_whole_numbers_up_to_their_bounds_are_written() -> None:
    assert canonical_json([2**53 - 1, -(2**53) + 1]) == b"[9007199254740991,-9007199254740991]"


def test_depth_is_bounded() -> None:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    with pytest.raises(EventValidationError, match="deeper"):
        canonical_json(value)


def test_floats_that_would_come_back_as_whole_numbers_are_not_written_as_text() -> None:
    assert canonical_text([1e21, 0.1, 4.0], "payload") == b"[1e+21,0.1,4]"
    with pytest.raises(EventValidationError) as caught:
        canonical_text({"a": [1e20]}, "payload")
    assert caught.value.field == "payload.a.0"


def test_the_canonical_envelope_is_its_json_form_without_the_signature() -> None:
    event = envelope(extensions={"zone": "z"})
    form = event.to_dict()
    assert json.loads(canonical_envelope(event)) == form
    assert canonical_envelope(event).startswith(b'{"causation_id":')
