"""Values without their secrets, by the annotations of a JSON Schema (RFC-2003 §7.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from noesium_stream.redaction import HIDDEN

_DEPTH: Final = 64
_REFERENCES: Final = ("$ref", "$dynamicRef")
_LISTS: Final = ("anyOf", "oneOf", "allOf")
_SINGLE: Final = ("if", "then", "else", "not")
_UNKNOWN: Final[Mapping[str, Any]] = {"writeOnly": True}
"""What stands for a schema that cannot be found: what it describes is hidden."""


def redacted(value: Any, schema: Mapping[str, Any] | None) -> Any:
    """A JSON value in which each part that the schema calls secret is `***`.

    Secret is what has `"writeOnly": true`, `"format": "password"` or `"x-noesium-secret": true`, also within
    arrays, alternatives and references to the schema's own definitions. When in doubt it is hidden: a pattern
    of properties counts for all names, and a reference that is not a pointer within the schema is secret.
    """
    if schema is None or not _may_have_secrets(schema):
        return value
    return _redacted(value, [schema], schema, _DEPTH)


def _may_have_secrets(schema: Mapping[str, Any]) -> bool:
    """Whether a secret's annotation occurs anywhere in a schema."""
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            if _is_secret(one):
                return True
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
    return False


def _redacted(value: Any, schemas: list[Any], root: Mapping[str, Any], depth: int) -> Any:
    meant = _meant(schemas, root)
    if depth == 0 or any(_is_secret(one) for one in meant):
        return None if value is None else HIDDEN
    if isinstance(value, Mapping):
        parts = ((name, item, list(_of_property(meant, name))) for name, item in value.items())
        return {name: _redacted(item, found, root, depth - 1) for name, item, found in parts}
    if isinstance(value, list):
        return [_redacted(item, list(_of_item(meant, at)), root, depth - 1) for at, item in enumerate(value)]
    return value


def _is_secret(schema: Mapping[str, Any]) -> bool:
    return (
        schema.get("writeOnly") is True
        or schema.get("format") == "password"
        or schema.get("x-noesium-secret") is True
    )


def _meant(schemas: list[Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Schemas, and all that they refer to or combine, each once."""
    found: dict[int, Mapping[str, Any]] = {}
    waiting = list(schemas)
    while waiting:
        schema = waiting.pop()
        if isinstance(schema, Mapping) and id(schema) not in found:
            found[id(schema)] = schema
            waiting.extend(_combined(schema, root))
    return list(found.values())


def _combined(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    for name in _REFERENCES:
        if name in schema:
            yield _target(schema[name], root)
    for name in _LISTS:
        if isinstance(schema.get(name), list):
            yield from schema[name]
    for name in _SINGLE:
        yield schema.get(name)
    for name in ("dependentSchemas", "dependencies"):
        if isinstance(schema.get(name), Mapping):
            yield from schema[name].values()


def _target(reference: Any, root: Mapping[str, Any]) -> Any:
    """The schema that a reference points to: a pointer into the whole schema, or nothing that is known."""
    if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
        return _UNKNOWN
    found: Any = root
    for part in unquote(reference).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdigit() and len(name) < 6 and int(name) < len(found):
            found = found[int(name)]
        else:
            return _UNKNOWN
    return found


def _of_property(schemas: list[Mapping[str, Any]], name: str) -> Iterator[Any]:
    for schema in schemas:
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            yield properties[name]
        else:
            yield schema.get("additionalProperties")
            yield schema.get("unevaluatedProperties")
        if isinstance(schema.get("patternProperties"), Mapping):
            yield from schema["patternProperties"].values()


def _of_item(schemas: list[Mapping[str, Any]], at: int) -> Iterator[Any]:
    for schema in schemas:
        for name in ("prefixItems", "items"):
            first = schema.get(name)
            if isinstance(first, list) and at < len(first):
                yield first[at]
            elif isinstance(first, Mapping):
                yield first
        for name in ("additionalItems", "unevaluatedItems", "contains"):
            yield schema.get(name)
