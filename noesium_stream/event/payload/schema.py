"""JSON Schema 2020-12 generated from event classes."""

from __future__ import annotations

from typing import Any, Final

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema

from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent

JsonSchema = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NAMED: Final = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
_REMARKS: Final = frozenset({"title", "description", "examples", "$comment", "$id", "$schema"})


class _Untitled(GenerateJsonSchema):
    """Generator without field titles: they repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """See `GenerateJsonSchema`."""
        return False


def class_schema(event_class: type[DomainEvent]) -> JsonSchema:
    """The schema of a class's payload: with dialect and name, and open to additional fields.

    Raises:
        ConfigError: a field cannot be represented in JSON.
    """
    try:
        schema = event_class.model_json_schema(mode="validation", schema_generator=_Untitled)
    except PydanticInvalidForJsonSchema as error:
        raise ConfigError(
            f"{event_class.__name__} has a field that JSON cannot hold: {error.message}."
        ) from None
    schema = {
        "$schema": DIALECT,
        "$id": f"urn:noesium:event:{event_class.event_type()}:{event_class.event_version()}",
        **schema,
    }
    schema["additionalProperties"] = True
    return schema


def meaning(schema: Any, *, named: bool = False) -> Any:
    """A schema without annotations (titles, descriptions), for comparison.

    `named`: the keys are field names, not keywords.
    """
    if isinstance(schema, dict):
        return {
            key: meaning(value, named=not named and key in _NAMED)
            for key, value in schema.items()
            if named or key not in _REMARKS
        }
    if isinstance(schema, list):
        return [meaning(item) for item in schema]
    return schema


def resolved(schema: Any, root: JsonSchema) -> Any:
    """The schema that a local `$ref` points to; anything else as it is."""
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        target: Any = root
        for part in schema["$ref"].removeprefix("#").split("/")[1:]:
            target = (
                target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
            )
        if target is None or target is schema:
            break
        schema = target
    return schema


def refuse_remote_references(schema: Any) -> None:
    """Check that a payload's schema is self-contained (RFC-0002): validation never fetches anything.

    Raises:
        ConfigError: a `$ref` points outside the schema.
    """
    if isinstance(schema, dict):
        for reference in (schema.get("$ref"), schema.get("$dynamicRef")):
            if isinstance(reference, str) and not reference.startswith("#"):
                raise ConfigError(
                    f"the schema of a payload refers to {reference}.",
                    hint="Schemas of payloads are self-contained: put what is shared under $defs.",
                )
        for part in schema.values():
            refuse_remote_references(part)
    elif isinstance(schema, list):
        for part in schema:
            refuse_remote_references(part)
