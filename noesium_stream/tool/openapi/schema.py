"""Schemas of an OpenAPI document as JSON Schema 2020-12 that stands alone.

References to the document become references to `$defs`, so that recursive schemas stay recursive. Only known
keywords are taken. What 3.0 writes differently (`nullable`, exclusive bounds) is converted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Literal

from noesium_stream.event.payload.validator import PATTERNS, validator
from noesium_stream.tool.openapi.document import Document, ProblemError

MAX_NODES: Final = 20_000
MAX_DEPTH: Final = 60
MAX_TEXT: Final = 1_000
"""Characters of a description."""

Direction = Literal["request", "response"]

_PLAIN: Final = frozenset(
    {
        *("type", "enum", "const", "format", "title", "description", "default", "required", "pattern"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"),
        *("minContains", "maxContains", "dependentRequired", "writeOnly", "readOnly"),
    }
)
_ONE: Final = frozenset(
    {
        *("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "unevaluatedItems"),
        *("contains", "not", "if", "then", "else"),
    }
)
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS: Final = frozenset(("properties", "patternProperties", "dependentSchemas"))
_HIDDEN: Final = {"request": "readOnly", "response": "writeOnly"}
"""What a message of this direction does not have."""
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


class Converter:
    """Converts schemas that share their definitions.

    Args:
        document: what they are from.
        direction: of the message that they describe; required fields that it does not have are not required.
    """

    def __init__(self, document: Document, direction: Direction) -> None:
        self._document = document
        self._hidden = _HIDDEN[direction]
        self._nodes = 0
        self._names: dict[str, str] = {}
        self.definitions: dict[str, Any] = {}

    def convert(self, schema: Any, depth: int = 0) -> Any:
        """One schema.

        Raises:
            ProblemError: it is too large, too deep, or refers to what the document does not hold.
        """
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise ProblemError("its schemas are too large or too deep")
        if not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else {}
        if "$ref" in schema:
            found = {"$ref": f"#/$defs/{self._defined(schema['$ref'], depth)}"}
            others = {} if self._document.is_3_0 else {key: schema[key] for key in schema if key != "$ref"}
            return {**self.convert(others, depth + 1), **found} if others else found
        converted = self._parts(schema, depth)
        self._hide(schema, converted)
        _plain_types(converted, nullable=self._document.is_3_0 and schema.get("nullable") is True)
        return converted

    def _defined(self, reference: Any, depth: int) -> str:
        target = self._document.at(reference)
        if reference not in self._names:
            self._names[reference] = name = f"{len(self._names)}"
            self.definitions[name] = self.convert(target, depth + 1)
        return self._names[reference]

    def _parts(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        def below(part: Any) -> Any:
            return self.convert(part, depth + 1)

        return {key: _converted(key, value, below) for key, value in schema.items() if _is_wanted(key, value)}

    def _hide(self, schema: dict[str, Any], converted: dict[str, Any]) -> None:
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return
        hidden = {name for name, part in properties.items() if self._is_hidden(part)}
        converted["properties"] = {
            name: part for name, part in converted["properties"].items() if name not in hidden
        }
        if hidden and isinstance(converted.get("required"), list):
            converted["required"] = [name for name in converted["required"] if name not in hidden]

    def _is_hidden(self, part: Any) -> bool:
        try:
            return self._document.resolve(part).get(self._hidden) is True
        except ProblemError:
            return False


def _is_wanted(key: str, value: Any) -> bool:
    if key == "pattern":
        return isinstance(value, str) and _is_pattern(value)
    if key in _LISTS:
        return isinstance(value, list) and bool(value)
    return key in _PLAIN or key in _ONE or (key in _MAPS and isinstance(value, dict))


def _converted(key: str, value: Any, below: Callable[[Any], Any]) -> Any:
    if key in _ONE:
        return below(value)
    if key in _LISTS:
        return [below(item) for item in value]
    if key in _MAPS:
        return {name: below(item) for name, item in value.items()}
    return value[:MAX_TEXT] if key in ("title", "description") and isinstance(value, str) else value


def _plain_types(schema: dict[str, Any], *, nullable: bool) -> None:
    """Convert what 3.0 writes in its own way."""
    if nullable and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
    for exclusive, bound in _BOUNDS:
        if isinstance(schema.get(exclusive), bool):
            is_exclusive = schema.pop(exclusive)
            if is_exclusive and bound in schema:
                schema[exclusive] = schema.pop(bound)


@lru_cache(1_000)
def _is_pattern(text: str) -> bool:
    """Whether a pattern can be judged here; one of another dialect is left out."""
    try:
        validator({"pattern": text}, PATTERNS)
    except ValueError:
        return False
    return True
