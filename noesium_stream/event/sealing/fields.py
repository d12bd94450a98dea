"""Which fields of a payload are sealed, and what stands in their place when the key is gone.

Of a standard event those fields stay readable that say what happened and not what it was about: ids, names of
code, numbers, times and states, so that the history of a run can be followed after its content is gone. All
others are sealed: texts for people, values of any form, and hashes, from which a value can be guessed. Of an
event of one's own all fields are sealed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from noesium_stream.event.limits import MAX_NAME
from noesium_stream.event.payload.schema import JsonSchema, resolved

ERASED: Final = "erased"
"""In place of a text or of any value."""

_HASHES: Final = ("_hash", "fingerprint")
_NUMBERS: Final = frozenset({"integer", "number"})
_DEEP: Final = 8


class Fields(NamedTuple):
    """The fields of a type: those that stay readable, and the schema of all."""

    shown: Collection[str]
    schema: JsonSchema

    def sealed(self, payload: Mapping[str, Any]) -> list[str]:
        """The names in a payload that are sealed, sorted. That nothing is there stays readable."""
        return sorted(name for name, value in payload.items() if value is not None and name not in self.shown)

    def stand_in(self, name: str) -> Any:
        """A value in place of a sealed one, of the field's own form where that is possible."""
        field = self.schema.get("properties", {}).get(name)
        return ERASED if field is None else _stand_in(field, self.schema)


def fields_of(schema: JsonSchema, *, standard: bool, personal: Collection[str] = ()) -> Fields:
    """The fields of a type by its schema.

    Args:
        schema: the JSON Schema of its payloads.
        standard: whether it is a standard event.
        personal: names that are sealed whatever their form.
    """
    if not standard:
        return Fields(frozenset(), schema)
    properties: Mapping[str, Any] = schema.get("properties", {})
    shown = frozenset(
        name
        for name, field in properties.items()
        if name not in personal and not name.endswith(_HASHES) and _is_structure(field, schema)
    )
    return Fields(shown, schema)


def _is_structure(field: Any, root: JsonSchema, depth: int = 0) -> bool:
    """Whether a field can hold nothing but numbers, truth values, choices, and texts as short as names."""
    field = resolved(field, root)
    if not isinstance(field, Mapping) or depth > _DEEP:
        return False
    if "enum" in field or "const" in field:
        return True
    if "anyOf" in field:
        return all(_is_structure(one, root, depth + 1) for one in field["anyOf"])
    kind = field.get("type")
    if kind == "string":
        return bool(field.get("maxLength", MAX_NAME + 1) <= MAX_NAME)
    if kind == "array":
        return _is_structure(field.get("items"), root, depth + 1)
    if kind == "object":
        parts = [*field.get("properties", {}).values()]
        if isinstance(field.get("additionalProperties"), Mapping):
            parts.append(field["additionalProperties"])
        return bool(parts) and all(_is_structure(one, root, depth + 1) for one in parts)
    return kind in _NUMBERS or kind in ("boolean", "null")


def _stand_in(field: Any, root: JsonSchema) -> Any:
    field = resolved(field, root)
    choices = [resolved(one, root) for one in field.get("anyOf", [field])]
    kinds = {one.get("type"): one for one in choices if isinstance(one, Mapping)}
    text = kinds.get("string")
    if None in kinds or (text is not None and "pattern" not in text and _takes(text, ERASED)):
        return ERASED
    if "null" in kinds:
        return None
    if "array" in kinds:
        return []
    if "object" in kinds:
        return {ERASED: True}
    if "boolean" in kinds:
        return False
    number = kinds.get("integer") or kinds.get("number")
    return ERASED if number is None else max(0, number.get("minimum", 0))


def _takes(text: Mapping[str, Any], value: str) -> bool:
    return bool(text.get("maxLength", len(value)) >= len(value))
