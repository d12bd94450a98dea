"""Any value as JSON types, or a clear word about the part of it that has no JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.errors import StateError
from noesium_stream.event.envelope import MAX_INT

_MAX_DEPTH: Final = 64
_SHOWN: Final = 40


def to_json(value: Any, path: str, depth: int = 0) -> Any:
    """A deep copy of `value` made of JSON types only (tuples become lists, models their fields).

    Raises:
        StateError: a part has no JSON form; the message names its path.
    """
    if isinstance(value, str):
        return text(value, path)
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
    """A text as it is.

    Raises:
        StateError: UTF-8 cannot write it.
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
    """The error for a value in a value in a value, or one that holds itself."""
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
            out[text(key, path)] = to_json(item, f"{path}.{key}", depth + 1)
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
