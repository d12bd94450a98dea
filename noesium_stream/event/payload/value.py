"""JSON values: conversion to JSON types (`to_json`), and the JSON text inside an event.

Text is UTF-8, without duplicate keys and NaN, and of bounded depth.

orjson is five times faster than `json` but accepts three things that must be refused: it writes NaN as null,
keeps the last of duplicate keys, and reads whole numbers beyond 64 bits as floats. Writing the parsed value
again detects them at C speed: text that orjson would write the same way contains none of them. Only other
text (foreign writers, or an attack) is examined in detail.
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
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
_LONG_WHOLE: Final = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}(?![0-9.eE])")
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?')
"""A string, and the colon after it if it is a key."""

_NAMED_UP_TO: Final = 100_000
"""Size limit in bytes of texts in which a duplicate key is looked up for the message.

The search takes longer than all other checks.
"""

_MAX_DEPTH: Final = 64
"""Maximum nesting depth that `to_json` copies."""
_SHOWN: Final = 40
_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS


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


def too_deep(path: str, levels: int) -> StateError:
    """The error for a value that is nested too deeply, or contains itself."""
    shown = path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…"
    return StateError(
        f"{shown} is nested deeper than {levels} levels.",
        hint="Does it hold itself? Keep ids of the parts instead.",
    )


def _container(value: Any, path: str, depth: int) -> Any:
    if isinstance(value, Mapping):
        out = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise StateError(f"{path} has a key of type {type(key).__name__}; JSON keys are texts.")
            out[key if key.isascii() else text(key, path)] = to_json(item, f"{path}.{key}", depth + 1)
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
        _look_closely(value, text, field)
    return value


def parse_object(text: bytes, field: str) -> dict[str, Any]:
    """As `parse_json`, for an object."""
    try:
        found = orjson.loads(text)
        if type(found) is dict and orjson.dumps(found) == text:
            return found
    except (ValueError, TypeError):
        pass  # `parse_json` reports it in detail
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
    """Detect what orjson accepts wrongly, without building the value a second time.

    In valid JSON only keys are strings before a colon. If the text has more of them than the value has keys,
    a duplicate was overwritten.
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
