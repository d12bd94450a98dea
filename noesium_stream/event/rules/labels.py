"""Values in one short line for people: the input of a run, the argument of a `Send`.

A line has the first fields of a value, without those whose name or text may hold a secret. No code of a
value's class runs: a `__repr__` may be slow, wrong or endless.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any, Final

from pydantic import BaseModel

from noesium_stream.redaction import HIDDEN, is_secret, redacted

WIDTH: Final = 100
"""Most characters of a label."""

_MOST_FIELDS: Final = 4
_MOST_CHARACTERS: Final = 40
_LOOKED_AT: Final = 1_000
_LONGEST_BITS: Final = 128


def label_of(run_input: Mapping[str, Any]) -> str:
    """The input of a run in one line: its first text, else its first message, else its first fields."""
    for value in run_input.values():
        if isinstance(value, str) and value.strip():
            return shortened(value, WIDTH)
    for value in run_input.values():
        text = _message(value)
        if text:
            return shortened(text, WIDTH)
    return summary_of(run_input)


def summary_of(value: Any) -> str:
    """A value in one line of at most `WIDTH` characters: a text, a number, or its first fields."""
    fields = _fields(value)
    if fields is None:
        return shortened(_part(value), WIDTH)
    shown = [f"{shortened(name, _MOST_CHARACTERS)}={_field(name, part)}" for name, part in _first(fields)]
    more = [f"{len(fields) - _MOST_FIELDS} more"] if len(fields) > _MOST_FIELDS else []
    return shortened(", ".join([*shown, *more]), WIDTH)


def shortened(text: str, width: int) -> str:
    """A text on one line, cut at `width` characters; a lone surrogate, which no record takes, becomes `?`."""
    flat = " ".join(text[:_LOOKED_AT].split()).encode(errors="replace").decode()
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


def _first(fields: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for (name, part), _ in zip(fields.items(), range(_MOST_FIELDS), strict=False):
        yield name if isinstance(name, str) else type(name).__name__, part


def _field(name: str, part: Any) -> str:
    return HIDDEN if is_secret(name) else shortened(_part(part), _MOST_CHARACTERS)


def _part(value: Any) -> str:
    """A value without what is in it, if it has parts."""
    if isinstance(value, str):
        return redacted(value[:_LOOKED_AT])
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int):
        return str(int(value)) if value.bit_length() <= _LONGEST_BITS else "a large number"
    if isinstance(value, float):
        return str(float(value))
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{len(value)} items]" if len(value) != 1 else "[1 item]"
    if isinstance(value, dict):
        return f"{{{len(value)} fields}}" if len(value) != 1 else "{1 field}"
    return type(value).__name__


def _fields(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, dict):
        return value
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        found: Mapping[Any, Any] | None = getattr(value, "__dict__", None)
        return found
    return None


def _message(value: Any) -> str:
    """The text of the first chat message of a list, as `{"content": …}` or `[role, text]`."""
    first = value[0] if isinstance(value, list | tuple) and value else None
    if isinstance(first, dict) and isinstance(first.get("content"), str):
        return str(first["content"]).strip()
    if isinstance(first, list | tuple) and len(first) == 2 and all(isinstance(part, str) for part in first):
        return str(first[1]).strip()
    return ""
