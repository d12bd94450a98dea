"""Upper bound on the work of a validation, computed before a schema from a log judges a value.

A schema of a few hundred bytes can double its work with each `$ref` (`allOf` of twice the next definition),
or with each level of the value (`items` that apply the schema twice). So the schema is walked first as the
validator would apply it, with references expanded, and the walk has a limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

MAX_VISITS: Final = 10_000
"""Parts of a schema, with its references expanded."""
MAX_DEPTH: Final = 100
"""Nesting depth of a schema, with its references expanded."""
MAX_WORK: Final = 50_000_000
"""Steps of one validation, at most; a second or so."""

_HERE: Final = ("here", None)
_SAME_VALUE: Final = ("not", "if", "then", "else")
_SAME_VALUE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_ANY_FIELD: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ANY_ITEM: Final = ("items", "contains", "unevaluatedItems")
_LISTS: Final = ("enum", "required", "pattern")

_Place = tuple[str, str | int | None]
"""Where a part applies: the value itself, one field or item of it, or any (None)."""


class SchemaCost(NamedTuple):
    """The work that a schema makes.

    Attributes:
        work: steps for one value.
        again: how often one part of a value is judged by the schema as a whole again, for each level.
    """

    work: int
    again: int

    def check(self, value: Any) -> None:
        """Raise `ValueError` if judging this value may take more than `MAX_WORK` steps."""
        size, depth = _measured(value)
        growth = max(1, self.again)
        steps = self.work * size
        for _ in range(depth if growth > 1 else 0):
            steps *= growth
            if steps > MAX_WORK:
                break
        if steps > MAX_WORK:
            raise ValueError(f"judging this value may take more than {MAX_WORK:,} steps")


def schema_cost(schema: Mapping[str, Any]) -> SchemaCost:
    """Measure a schema.

    Raises:
        ValueError: it is too large or too deep, or refers to something that it does not hold.
    """
    walk = _Walk(schema)
    again = _collapsed(walk.visit(schema, schema, frozenset({id(schema)}), 0))
    return SchemaCost(walk.work, again)


class _Walk:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._visits = 0
        self.work = 0
        self._anchors: dict[str, list[Any]] = {}
        for part in _parts(schema):
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(part.get(keyword), str):
                    self._anchors.setdefault(part[keyword], []).append(part)

    def visit(self, schema: Any, root: Any, open_: frozenset[int], depth: int) -> Counter[_Place]:
        """Count, by place, how often a schema that is being visited applies there again."""
        self._visits += 1
        if self._visits > MAX_VISITS:
            raise ValueError(f"the schema has more than {MAX_VISITS:,} parts, with its references expanded")
        if depth > MAX_DEPTH:
            raise ValueError(f"the schema is nested deeper than {MAX_DEPTH} levels")
        self.work += 1
        found: Counter[_Place] = Counter()
        if not isinstance(schema, Mapping):
            return found
        self.work += sum(len(schema[key]) for key in _LISTS if isinstance(schema.get(key), (list, str)))
        root = schema if isinstance(schema.get("$id"), str) else root
        for target in self._targets(schema, root):
            if id(target) in open_:
                found[_HERE] += 1
            else:
                found.update(self.visit(target, root, open_ | {id(target)}, depth + 1))
        for place, part in _applied(schema):
            below = self.visit(part, root, open_, depth + 1)
            if place == _HERE:
                found.update(below)
            else:
                found[place] += _collapsed(below)
        return found

    def _targets(self, schema: Mapping[str, Any], root: Any) -> Iterator[Any]:
        for keyword in ("$ref", "$dynamicRef"):
            reference = schema.get(keyword)
            if reference is None:
                continue
            if not isinstance(reference, str) or not reference.startswith("#"):
                raise ValueError(f"the schema refers to {reference!r:.200}, and no schema loads anything")
            fragment = unquote(reference[1:])
            if fragment and not fragment.startswith("/"):
                targets = self._anchors.get(fragment, [])
            else:
                targets = list(_at(root, fragment.split("/")[1:]))
            if not targets:
                raise ValueError(f"the schema refers to {reference!r:.200}, which it does not hold")
            yield from targets


def _at(root: Any, path: list[str]) -> Iterator[Any]:
    """The part of a schema at a JSON pointer, if there is one."""
    for key in path:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(root, Mapping) and key in root:
            root = root[key]
        elif isinstance(root, list) and key.isdecimal() and int(key) < len(root):
            root = root[int(key)]
        else:
            return
    yield root


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Everything in a schema that may be a schema, without recursion."""
    left, count = [(schema, 0)], 0
    while left:
        part, depth = left.pop()
        count += 1
        if count > 10 * MAX_VISITS or depth > 2 * MAX_DEPTH:
            raise ValueError("the schema is too large or too deep")
        if isinstance(part, Mapping):
            yield part
            left.extend((item, depth + 1) for item in part.values() if isinstance(item, (Mapping, list)))
        elif isinstance(part, list):
            left.extend((item, depth + 1) for item in part if isinstance(item, (Mapping, list)))


def _applied(schema: Mapping[str, Any]) -> Iterator[tuple[_Place, Any]]:
    """The parts that the validator applies, and where."""
    for keywords, place in ((_SAME_VALUE, _HERE), (_ANY_FIELD, ("field", None)), (_ANY_ITEM, ("item", None))):
        yield from ((place, schema[keyword]) for keyword in keywords if keyword in schema)
    for keyword in _SAME_VALUE_LISTS:
        yield from ((_HERE, part) for part in _list(schema.get(keyword)))
    yield from ((_HERE, part) for part in _map(schema.get("dependentSchemas")).values())
    yield from ((("field", name), part) for name, part in _map(schema.get("properties")).items())
    yield from ((("field", None), part) for part in _map(schema.get("patternProperties")).values())
    yield from ((("item", number), part) for number, part in enumerate(_list(schema.get("prefixItems"))))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _map(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _collapsed(found: Counter[_Place]) -> int:
    """The highest count for one part of a value."""
    most = 0
    for kind in ("field", "item"):
        named = max(
            (count for (what, name), count in found.items() if what == kind and name is not None), default=0
        )
        most = max(most, named + found[(kind, None)])
    return found[_HERE] + most


def _measured(value: Any) -> tuple[int, int]:
    """Size (items, and texts by the line) and depth of a JSON value."""
    size = deepest = 0
    left = [(value, 0)]
    while left:
        part, depth = left.pop()
        size += 1
        deepest = max(deepest, depth)
        if isinstance(part, str):
            size += len(part) // 64
        elif isinstance(part, Mapping):
            left.extend((item, depth + 1) for item in part.values())
        elif isinstance(part, (list, tuple)):
            left.extend((item, depth + 1) for item in part)
    return size, deepest
