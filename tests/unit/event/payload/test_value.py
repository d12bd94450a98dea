from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from noesium_stream.errors import EventValidationError, StateError
from noesium_stream.event import canonical_json
from noesium_stream.event.payload.canonical import canonical_text
from noesium_stream.event.payload.value import parse_json, parse_object, refuse_non_json, to_json
from noesium_stream.kernel.state.typed_json import encode
from tests.support.hostile_json import hostile_texts
from tests.support.steps import steps_of

SIZE = 1_000_000
TEXTS = hostile_texts(SIZE)


@pytest.mark.parametrize(
    "text",
    [
        b' {"a" : [1, 2.50, -0, 1E5, true, null], "b":{"a":"a"}}\n',
        b'{"\\u0061":1,"b":":\\u003a\\u003A\\\\u003a\\\\\\u003a","c":"\\/"}',
        b'[18446744073709551615,-9223372036854775808,1e20,"12345678901234567890123"]',
        b"[12345678901234567890123.0,12345678901234567890123e1,-12345678901234567890123E-3, true,false]",
        b'[1.5E+300 ,"true",{"false":"\\"1e20\\\\"},0.12345678901234567890123e-20]',
        b'"\\ud83d\\ude00"',
        b'{"":{"":{"":1}}}',
    ],
)
def test_text_of_another_writer_is_read_as_the_standard_library_reads_it(text: bytes) -> None:
    assert parse_json(text, "payload") == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":2}',
        b'{"a:":1,"a\\u003a":2}',
        b'{"a":"\\u003a","a":"\\u003a"}',
        b'{"a":"\\\\u003a","a":":"}',
        b'[{"b":{"a":{},"c":1,"a":{}}}]',
        b'{"":1,"":2}',
        b'{"a":{"x":1,"y":2},"a":{"x":1,"y":2,"z":3}}',
        b'{"a":"b:c","a":"b:c"}',
    ],
)
def test_a_key_that_occurs_twice_in_an_object_is_refused(text: bytes) -> None:
    with pytest.raises(EventValidationError, match=r"payload: the key .* occurs twice in an object"):
        parse_object(text, "payload") if text.startswith(b"{") else parse_json(text, "payload")


@pytest.mark.parametrize(
    "text",
    [
        b"[18446744073709551616]",
        b"-9223372036854775809",
        b'{"a":1e20,"b":99999999999999999999}',
        b'["1e5",true,false,null, 123456789012345678901234567890]',
        b"[1.5,12345678901234567890123.0,-" + b"1" * 300 + b"]",
    ],
)
def test_a_whole_number_beyond_64_bits_is_refused(text: bytes) -> None:
    with pytest.raises(
        EventValidationError, match=r"payload: the whole number '-?\d+.*' does not fit in 64 bits"
    ):
        parse_json(text, "payload")


@pytest.mark.parametrize(
    "text",
    [
        *(
            b"",
            b"NaN",
            b"[Infinity]",
            b"[1e400]",
            b"1" * 400_000,
            b'"\\ud800"',
            b'"\xff"',
            b"[1,]",
            b"01",
            b"'a'",
        ),
        *(
            b"[" * 255 + b"]" * 255,
            b"[" * 100_000,
            b"{}{}",
            b'{"a"}',
            b'"\n"',
            b"\xef\xbb\xbf{}",
            b"1.",
            b".5",
        ),
    ],
)
def test_text_that_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(EventValidationError, match=r"payload: is (not JSON|nested deeper)"):
        parse_json(text, "payload")


@pytest.mark.parametrize("name", TEXTS)
def test_reading_a_hostile_text_takes_steps_for_its_bytes_and_not_for_its_items(name: str) -> None:
    assert steps_of(lambda: _parse(TEXTS[name])) < SIZE // 200


@pytest.mark.parametrize("name", TEXTS)
def test_reading_a_hostile_text_takes_little_more_memory_than_orjson(name: str) -> None:
    text = TEXTS[name]
    assert _peak(lambda: _parse(text)) < _peak(lambda: _parse_bare(text)) + 6 * len(text)


@pytest.mark.parametrize(
    ("judge", "wrong"),
    [
        (to_json, 2**53),
        (to_json, math.nan),
        (encode, 2**53),
        (encode, math.nan),
        (refuse_non_json, math.nan),
        (canonical_json, 2**53),
        (canonical_text, 1e17),
    ],
)
@pytest.mark.parametrize("keys", [["k" * 100_000], ["k" * 100_000, "a"], ["a"] * 40])
def test_the_path_of_a_wrong_part_is_short_whatever_the_keys_above_it(
    judge: Callable[[Any, str], object], wrong: Any, keys: list[str]
) -> None:
    # A path that every part of a list extends is copied as often: long keys and many parts are a square.
    value: Any = [1, wrong]
    for key in keys:
        value = {key: value}
    with pytest.raises((StateError, EventValidationError)) as caught:
        judge(value, "payload")
    assert len(str(caught.value)) < 500


def _parse(text: bytes) -> Any:
    try:
        return parse_json(text, "payload")
    except EventValidationError:
        return None


def _parse_bare(text: bytes) -> Any:
    try:
        return orjson.dumps(orjson.loads(text))
    except orjson.JSONDecodeError:
        return None


def _peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
