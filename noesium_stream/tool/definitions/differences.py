"""The differences between two definitions of a tool, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_ABSENT = object()


class Difference(NamedTuple):
    """A field that has changed: its path and values; `was_there` and `is_there` tell None from absence."""

    path: str
    before: Any
    after: Any
    was_there: bool = True
    is_there: bool = True


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """What has changed, by path (`input_schema.properties.path.type`); lists are compared as a whole."""
    return list(_found("", before, after))


def _found(path: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    for name in sorted({*before, *after}):
        was, now = before.get(name, _ABSENT), after.get(name, _ABSENT)
        where = f"{path}.{name}" if path else name
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _found(where, was, now)
        elif was is _ABSENT or now is _ABSENT:
            yield Difference(
                where,
                None if was is _ABSENT else was,
                None if now is _ABSENT else now,
                was is not _ABSENT,
                now is not _ABSENT,
            )
        elif was != now or type(was) is not type(now):
            yield Difference(where, was, now)
