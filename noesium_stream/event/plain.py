"""Payloads of events whose fields are texts, numbers and truth values, without asking pydantic for each.

Decision record: `model_dump` takes 1 µs for three fields and gives the very values that the model holds,
where each is of a type that JSON has and nobody has said how else it is to be written. Which classes are such
is found out once; whether the values of an event are is looked at each time, for `model_construct` takes any.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_EXACT: Final = frozenset({str, int, bool, NoneType})
_PLAIN: Final = frozenset({str, int, bool, float, NoneType})
_classes: dict[type[BaseModel], tuple[int, tuple[str, ...]] | None] = {}
"""Of the plain ones, how many fields they have, and which may be fractions: pydantic writes a whole number
there as one."""
_UNKNOWN: Final = (0, ("",))
_SIMPLE: Final = {"string": str, "integer": int, "boolean": bool}
_OF_A_FIELD: Final = frozenset({"type", "title", "description", "default"})
_OF_AN_OBJECT: Final = frozenset(
    {"$schema", "$id", "title", "description", "type", "properties", "required", "additionalProperties"}
)

Shape = tuple[list[str], list[type]]
"""Names of fields in their order, and the type of each."""


def plain_payload(event: BaseModel) -> dict[str, Any] | None:
    """The fields of a model as JSON values; None where it takes pydantic to write them."""
    cls = type(event)
    known = _classes.get(cls, _UNKNOWN)
    if known is _UNKNOWN:
        plain = _is_plain(cls)
        known = _classes[cls] = (len(cls.__pydantic_fields__), _fractions(cls)) if plain else None
    if known is None or event.__pydantic_extra__:
        return None
    count, fractions = known
    fields = event.__dict__
    if len(fields) != count:  # a cached property lies there too
        return None
    for name in fractions:
        if type(fields.get(name)) is int:
            return None
    if not _EXACT.issuperset(map(type, fields.values())):
        for value in fields.values():
            kind = type(value)
            if kind not in _EXACT and not (kind is float and value - value == 0):  # neither NaN nor infinite
                return None
    return fields.copy()


def simple_shape(cls: type[BaseModel], schema: Mapping[str, Any]) -> Shape | None:
    """The names and types of the fields with which any event of a class is valid, and its own payload.

    Args:
        cls: the class of the events.
        schema: the JSON Schema that their payloads are judged by.

    Returns:
        None where more than that has to be looked at: a field that may be of several types, a fraction, a
        list or an object, whatever a schema or pydantic asks for beyond a type.
    """
    if not isinstance(schema, Mapping) or not _is_plain(cls) or _fractions(cls):
        return None
    properties: Mapping[str, Any] = schema.get("properties", {})
    names = list(cls.__pydantic_fields__)
    if (
        schema.get("type") != "object"
        or not _OF_AN_OBJECT.issuperset(schema)
        or list(properties) != names
        or not set(schema.get("required", ())).issubset(names)
    ):
        return None
    types = []
    for field in properties.values():
        said = field.get("type") if isinstance(field, Mapping) and _OF_A_FIELD.issuperset(field) else None
        if not isinstance(said, str) or said not in _SIMPLE:
            return None
        types.append(_SIMPLE[said])
    return names, types


def _is_plain(cls: type[BaseModel]) -> bool:
    decorators = cls.__pydantic_decorators__
    return (
        cls.model_dump is BaseModel.model_dump
        and not cls.model_config.get("json_encoders")
        and not decorators.field_serializers
        and not decorators.model_serializers
        and not decorators.computed_fields
        and "__get_pydantic_core_schema__" not in _own_names(cls)
        and all(map(_is_plain_field, cls.model_fields.values()))
    )


def _fractions(cls: type[BaseModel]) -> tuple[str, ...]:
    return tuple(
        name
        for name, field in cls.model_fields.items()
        if field.annotation is float or float in get_args(field.annotation)
    )


def _own_names(cls: type[BaseModel]) -> set[str]:
    """What the class and its bases define, as far as they are not pydantic's own."""
    return {name for base in cls.__mro__ if base not in BaseModel.__mro__ for name in vars(base)}


def _is_plain_field(field: FieldInfo) -> bool:
    return (
        field.alias is None
        and field.serialization_alias is None
        and not field.exclude
        and getattr(field, "exclude_if", None) is None
        and _is_plain_type(field.annotation)
        and all(type(one).__module__ == "annotated_types" for one in field.metadata)
    )


def _is_plain_type(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, UnionType):
        return all(map(_is_plain_type, get_args(annotation)))
    return get_origin(annotation) is Literal or annotation in _PLAIN
