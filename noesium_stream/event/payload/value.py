"""JSON values: conversion to JSON types (`to_json`), and the JSON text inside an event.

Text is UTF-8, without duplicate keys and NaN, and of bounded depth.

orjson is five times faster than `json` but accepts three things that must be refused: it writes NaN as null,
keeps the last of duplicate keys, and reads whole numbers beyond 64 bits as floats. Writing the parsed value
again detects them at C speed: text that orjson would write the same way contains none of them. Only other
text (foreign writers, or an attack) is examined in detail, in time and memory linear in its size: an attacker
chooses the bytes, so their number alone may matter.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from noesium_stream.errors import EventValidationError, StateError
from noesium_stream.event.envelope_fields import MAX_INT, check_utf8, short
from noesium_stream.event.limits import MAX_JSON_DEPTH

_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1
_DIGITS: Final = b"0123456789"
_BEYOND_64_BITS: Final = 19
"""Digits of the shortest whole number that may not fit in 64 bits."""
_BLANKS: Final = b"  "
"""Replaces an escape of two bytes: bytes of the same length are replaced in place, which is faster."""
_RARE: Final = 2_000
"""Bytes to a byte that is searched for instead of counted."""
_CHUNK: Final = 65_536
"""Bytes of a text that are cut at their quotes at a time."""
_LONG_WHOLE: Final = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}(?![0-9.eE])")
_LOWER_E: Final = bytes.maketrans(b"E", b"e")
_NO_MARKS: Final = b"0123456789+-[]{}:tralf \t\r\n"
"""What `count_floats` deletes."""

_NAMED_UP_TO: Final = 100_000
"""Size limit in bytes of texts in which a duplicate key is looked up for the message.

The search takes longer than all other checks.
"""

_MAX_DEPTH: Final = 64
"""Maximum nesting depth that `to_json` copies."""
_SHOWN: Final = 40
_PATH_LENGTH: Final = 200
_KEY_LENGTH: Final = 80
"""Characters of a path and of a key in it that errors show."""
_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


def copied(recorded: Any) -> Any:
    """A copy of a recorded value that shares nothing that can be changed with it."""
    if type(recorded) is dict:
        return {key: copied(item) for key, item in recorded.items()}
    if type(recorded) is list:
        return [copied(item) for item in recorded]
    return recorded


def to_json(value: Any, path: str, depth: int = 0) -> Any:
    """A deep copy of `value` with JSON types only (tuples become lists, models their fields).

    Raises:
        StateError: a part has no JSON form; the message names its path.
    """
    if isinstance(value, str):
        return value if value.isascii() else text(value, path)
    if value is None or isinstance(value, bool):
        return value
    if depth > _MAX_DEPTH:
        raise too_deep(path, _MAX_DEPTH)
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise StateError(f"{path} is an integer beyond 2^53-1.", hint="Keep it as text.")
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise StateError(f"{path} is {value}, which JSON does not have.")
        return value
    return _container(value, path, depth)


def text(value: str, path: str) -> str:
    """Return a string that UTF-8 can encode.

    Raises:
        StateError: UTF-8 cannot encode it.
    """
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise StateError(
                f"{path} holds half a surrogate pair, which UTF-8 cannot write.",
                hint="Names of files may hold one: os.fsencode gives their bytes, which can be recorded.",
            ) from None
    return value


def short_path(path: str) -> str:
    """A path that each part of a container may extend: keys have any length, and there are many parts."""
    return path if len(path) <= _PATH_LENGTH else f"{path[:_PATH_LENGTH]}…"


def too_deep(path: str, levels: int) -> StateError:
    """The error for a value that is nested too deeply, or contains itself."""
    shown = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…"
    return StateError(
        f"{shown} is nested deeper than {levels} levels.",
        hint="Does it hold itself? Keep ids of the parts instead.",
    )


def _container(value: Any, path: str, depth: int) -> Any:
    path = short_path(path)
    if isinstance(value, Mapping):
        out = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise StateError(f"{path} has a key of type {type(key).__name__}; JSON keys are texts.")
            out[key if key.isascii() else text(key, path)] = to_json(
                item, f"{path}.{key[:_KEY_LENGTH]}", depth + 1
            )
        return out
    if isinstance(value, list | tuple):
        return [to_json(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return to_json(dump(mode="json"), path, depth + 1)
    raise StateError(
        f"{path} is of type {type(value).__name__}, which has no JSON form.",
        hint="State is recorded as JSON: return dicts, lists, texts, numbers, booleans or None.",
    )


def dump_json(value: Any, field: str) -> bytes:
    """Encode `value` as compact JSON text; keys stay in order.

    Raises:
        EventValidationError: it is not JSON (NaN, keys that are not strings, other types, too deep).
    """
    try:
        text = orjson.dumps(value, None, _OPTIONS)
    except TypeError as error:
        refuse_non_json(value, field)
        raise EventValidationError(field, str(error)) from None
    if b"null" in text and orjson.loads(text) != value:
        # orjson writes NaN and the infinities as null.
        refuse_non_json(value, field)
    return text


def dump_plain(value: dict[str, Any]) -> bytes:
    """As `dump_json`, for a flat object without NaN and infinities.

    Raises:
        TypeError: a string or a number of it is not valid JSON.
    """
    return orjson.dumps(value, None, _OPTIONS)


def parse_json(text: bytes, field: str) -> Any:
    """Parse a JSON text.

    Raises:
        EventValidationError: it is not JSON, not UTF-8, too deep, or an object has a duplicate key.
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
        _look_closely(again, text, field)
    return value


def parse_object(text: bytes, field: str) -> dict[str, Any]:
    """As `parse_json`, for an object."""
    value = parse_json(text, field)
    if type(value) is not dict:
        raise EventValidationError(field, f"{short(value)} is not an object")
    return value


def refuse_non_json(
    value: Any, field: str, lowest: int = _LOWEST, highest: int = _HIGHEST, depth: int = 0
) -> None:
    """Refuse values that JSON cannot represent, and whole numbers outside `lowest` to `highest`.

    Raises:
        EventValidationError: names the path of the first such part and the reason.
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
        field = short_path(field)
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
        yield key[:_KEY_LENGTH], item


def _look_closely(again: bytes, text: bytes, field: str) -> None:
    """Detect what orjson accepts wrongly; `again` is how it writes the value of `text`.

    Both texts have the same colons, inside and outside of strings, unless a duplicate key was overwritten.
    They have as many floats, unless a long whole number became one, which orjson writes with an exponent.
    Bytes are counted in C: the number of keys, strings and numbers does not matter.
    """
    if _count_colons(text) != _count(b":", again):
        twice = short(_find_twice(text)) if len(text) <= _NAMED_UP_TO else "(one of many)"
        raise EventValidationError(field, f"the key {twice} occurs twice in an object")
    if b"e" not in again or not _has_digit(text[::_BEYOND_64_BITS]):
        return
    exponents, floats = count_floats(again)
    if exponents and count_floats(text)[1] != floats:
        long = _find_long(text) if len(text) <= _NAMED_UP_TO else "(one of many)"
        raise EventValidationError(field, f"the whole number {long} does not fit in 64 bits")


def _count_colons(text: bytes) -> int:
    """The colons of all keys and strings, if each escape were written out."""
    found = _count(b":", text)
    if b"\\" in text and (b"u003a" in text or b"u003A" in text):
        plain = text.replace(b"\\\\", _BLANKS)  # so that each backslash left begins an escape
        found += plain.count(b"\\u003a") + plain.count(b"\\u003A")
    return found


def _count(byte: bytes, text: bytes) -> int:
    """As `bytes.count`, which takes as long as orjson for a long string; a rare byte is found faster."""
    at = text.find(byte)
    for found in range(len(text) // _RARE):
        if at < 0:
            return found
        at = text.find(byte, at + 1)
    return text.count(byte)


def _has_digit(text: bytes) -> bool:
    return len(text.translate(None, _DIGITS)) < len(text)


def _outside_strings(text: bytes) -> Iterator[bytes]:
    """The parts of a valid JSON text that are not in quotes."""
    if b"\\" in text:
        text = text.replace(b"\\\\", _BLANKS).replace(b'\\"', _BLANKS)
    inside = 0
    for start in range(0, len(text), _CHUNK):
        parts = text[start : start + _CHUNK].split(b'"')
        yield b"".join(parts[inside::2])
        inside ^= (len(parts) - 1) & 1


def count_floats(text: bytes) -> tuple[int, int]:
    """The numbers with an exponent, and the numbers with an exponent or a point, of a valid JSON text."""
    # Of a float `.`, `e` or `.e` is left; of true `ue`, of false `se`, of null `nu`; and the commas.
    marks = b"".join(part.translate(_LOWER_E, _NO_MARKS) for part in _outside_strings(text))
    words = marks.count(b"u") - marks.count(b"n") + marks.count(b"s")
    exponents = marks.count(b"e") - words
    return exponents, exponents + marks.count(b".") - marks.count(b".e")


def _find_long(text: bytes) -> str:
    for digits in _LONG_WHOLE.findall(b"".join(_outside_strings(text))):
        if len(digits) > 21 or not _LOWEST <= int(digits) <= _HIGHEST:
            return short(digits[:64].decode())
    return "(unknown)"


def _find_twice(text: bytes) -> str:
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> None:
        if len(dict(items)) != len(items):
            found.append(Counter(name for name, _ in items).most_common(1)[0][0])

    json.loads(text, object_pairs_hook=pairs)
    return found[0] if found else "(unknown)"
