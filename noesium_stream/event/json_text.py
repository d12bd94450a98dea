"""JSON text as it travels inside an event: UTF-8, no duplicate keys, no NaN, bounded depth.

orjson is five times faster than `json` and forgives three things that must not pass: it writes NaN as
null, keeps the last of duplicate keys, and reads whole numbers beyond 64 bits as floats. The way back
finds them out at C speed: text that orjson would write the same way holds none of them; only other
text (foreign writers, or an attack) is looked at closely.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import orjson

from noesium_stream.errors import EventValidationError
from noesium_stream.event.limits import MAX_JSON_DEPTH
from noesium_stream.event.parts import check_utf8, short

_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_LONG_WHOLE: Final = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}(?![0-9.eE])")
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?')
"""A text, and the colon behind it if it is a key."""

_NAMED_UP_TO: Final = 100_000
"""Bytes of text up to which the key that occurs twice is looked for, which takes longer than all the rest."""

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def dump_json(value: Any, field: str) -> bytes:
    """Compact JSON text of `value`, keys in their order.

    Raises:
        EventValidationError: it is no JSON (NaN, keys that are no text, other types, too deep).
    """
    try:
        text = orjson.dumps(value, None, _OPTIONS)
    except TypeError as error:
        refuse_non_json(value, field)
        raise EventValidationError(field, str(error)) from None
    if b"null" in text and orjson.loads(text) != value:
        # NaN and the infinities are written as null.
        refuse_non_json(value, field)
    return text


def dump_plain(value: dict[str, Any]) -> bytes:
    """As `dump_json`, of an object that has no fractions but finite ones, and nothing within.

    Raises:
        TypeError: a text or a number of it is no JSON.
    """
    return orjson.dumps(value, None, _OPTIONS)


def parse_json(text: bytes, field: str) -> Any:
    """The value of a JSON text.

    Raises:
        EventValidationError: it is no JSON, not UTF-8, too deep, or an object has a key twice.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EventValidationError(field, f"is not JSON: {error}") from None
    try:
        again = orjson.dumps(value)
    except TypeError:
        raise EventValidationError(field, f"is nested deeper than {MAX_JSON_DEPTH} levels") from None
    if again != text:
        _look_closely(value, text, field)
    return value


def parse_object(text: bytes, field: str) -> dict[str, Any]:
    """As `parse_json`, of an object."""
    try:
        found = orjson.loads(text)
        if type(found) is dict and orjson.dumps(found) == text:
            return found
    except (ValueError, TypeError):
        pass  # said in so many words below
    value = parse_json(text, field)
    if type(value) is not dict:
        raise EventValidationError(field, f"{short(value)} is not an object")
    return value


def refuse_non_json(
    value: Any, field: str, lowest: int = _LOWEST, highest: int = _HIGHEST, depth: int = 0
) -> None:
    """Refuse what JSON cannot hold, and whole numbers outside of `lowest` to `highest`.

    Raises:
        EventValidationError: names the path of the first such part and what is wrong with it.
    """
    if isinstance(value, str):
        check_utf8(field, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise EventValidationError(field, f"{value} is not a JSON number")
    elif isinstance(value, int):
        if not lowest <= value <= highest:
            raise EventValidationError(field, f"the whole number is not within {lowest} to {highest}")
    elif isinstance(value, (dict, list, tuple)):
        if depth >= MAX_JSON_DEPTH:
            raise EventValidationError(field[:100], f"is nested deeper than {MAX_JSON_DEPTH} levels")
        for key, item in _items(value, field):
            refuse_non_json(item, f"{field}.{key}", lowest, highest, depth + 1)
    elif value is not None:
        raise EventValidationError(field, f"{short(value)} ({type(value).__name__}) is not a JSON value")


def _items(value: dict[Any, Any] | list[Any] | tuple[Any, ...], field: str) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict):
        yield from enumerate(value)
        return
    for key, item in value.items():
        if not isinstance(key, str):
            raise EventValidationError(field, f"the key {short(key)} is not a text")
        check_utf8(field, key)
        yield key, item


def _look_closely(value: Any, text: bytes, field: str) -> None:
    """Find what orjson forgives, without building the value a second time.

    In sound JSON only keys are texts before a colon: where there are more of them than the value has
    keys, one was overwritten.
    """
    if _LONG_NUMBER.search(text) is not None:
        for digits in _LONG_WHOLE.findall(_TEXT.sub(b"", text)):
            if len(digits) > 21 or not _LOWEST <= int(digits) <= _HIGHEST:
                name = short(digits[:64].decode())
                raise EventValidationError(field, f"the whole number {name} does not fit in 64 bits")
    texts = _TEXT.findall(text)
    if len(texts) - texts.count(b"") != _count_keys(value):
        twice = short(_find_twice(text)) if len(text) <= _NAMED_UP_TO else "(one of many)"
        raise EventValidationError(field, f"the key {twice} occurs twice in an object")


def _count_keys(value: Any) -> int:
    total = 0
    open_values = [value]
    while open_values:
        value = open_values.pop()
        if type(value) is dict:
            total += len(value)
            value = value.values()
        elif type(value) is not list:
            continue
        open_values += [item for item in value if type(item) in (dict, list)]
    return total


def _find_twice(text: bytes) -> str:
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> None:
        if len(dict(items)) != len(items):
            found.append(Counter(name for name, _ in items).most_common(1)[0][0])

    json.loads(text, object_pairs_hook=pairs)
    return found[0] if found else "(unknown)"
