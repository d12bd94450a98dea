"""Encoding of a projection's states: the same state has the same bytes in every process (law 6).

States are JSON, written by pydantic for the projection's type argument. Sets are unordered, so they are
sorted by their items' JSON text. A dict keeps the order in which `apply` filled it. Values that would not be
restored are refused: JSON has no NaN and no infinity, and would write null.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from noesium_stream.errors import ProjectionError, StateNotStoredError, brief
from noesium_stream.event.payload.schema import meaning
from noesium_stream.event.payload.value import short_path
from noesium_stream.projection.base import BaseProjection

TState = TypeVar("TState")

_PLAIN: Final = (int, str, bool, float, dict, list)
_AS_IT_IS: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_HINT: Final = "Let `apply` return what its type argument says, made of values that JSON has."


class StateCodec(Generic[TState]):
    """Encodes and decodes the states of one projection.

    Args:
        projection: its type argument (`BaseProjection[Account]`) is the type of a state.

    Raises:
        ProjectionError: pydantic does not support the type argument.
    """

    def __init__(self, projection: BaseProjection[TState]) -> None:
        self._name = projection.name
        self._at = f"the projection {projection.name}"
        kind = state_type(type(projection))
        self._adapter: TypeAdapter[Any] | None = None
        self._sorted = False
        self._floats = True
        shape: Any = f"json {kind!r}"
        # The type of `apply`'s result is not enforced: one declared as int may return NaN.
        if kind is not None and kind not in _PLAIN and not _is_json(kind):
            self._adapter, shape = self._adapted(kind)
            self._sorted = "uniqueItems" in orjson.dumps(shape).decode()
            self._floats = _may_hold_floats(shape)
        self.plain: Final = self._adapter is None
        """Whether any JSON value is stored as it is."""
        self.shape: Final = hashlib.blake2b(
            orjson.dumps(shape, option=orjson.OPT_SORT_KEYS), digest_size=8
        ).hexdigest()
        """Tells one type of state from another; a file of another one is discarded."""

    def encode(self, state: TState) -> bytes:
        """Encode a state.

        Raises:
            StateNotStoredError: it contains a value that JSON cannot represent.
        """
        try:
            data, values = self._dumped(state)
        except (TypeError, ValueError, RecursionError, PydanticSerializationError) as error:
            raise self._refused(brief(error, 300)) from error
        if self._floats and b"null" in data and (path := _not_finite(values, "state")):
            raise self._refused(f"{path} is no finite number")
        return data

    def decode(self, data: bytes) -> TState:
        """Decode a state into a new object.

        Raises:
            ProjectionError: the bytes are of another type of state.
        """
        try:
            if self._adapter is None:
                found: TState = orjson.loads(data)
                return found
            state: TState = self._adapter.validate_json(data, by_name=True, by_alias=False)
            return state
        except (ValidationError, ValueError) as error:
            raise ProjectionError(
                f"A stored state of {self._at} cannot be read: {brief(error, 300)}",
                hint="Count its `version` up when the meaning of its state changes.",
            ) from error

    def _adapted(self, kind: Any) -> tuple[TypeAdapter[Any], Any]:
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            return adapter, meaning(adapter.json_schema(mode="serialization"))
        except (PydanticUserError, PydanticUndefinedAnnotation, NameError, TypeError) as error:
            raise ProjectionError(
                f"{self._at[0].upper()}{self._at[1:]} has a state that cannot be stored: {brief(error, 300)}",
                hint="Let the state be a pydantic model, a dataclass, a TypedDict, or JSON values.",
            ) from error

    def _dumped(self, state: TState) -> tuple[bytes, Any]:
        """The encoded bytes and the encoded value, for the search for values that JSON cannot represent."""
        adapter = self._adapter
        if adapter is None:
            return orjson.dumps(state, option=_AS_IT_IS), state
        if not self._sorted:
            data = adapter.dump_json(state, warnings="error", round_trip=True, by_alias=False)
            lacking = self._floats and b"null" in data
            return data, adapter.dump_python(state, round_trip=True) if lacking else None
        values = adapter.dump_python(state, warnings="error", round_trip=True, by_alias=False)
        return orjson.dumps(values, default=_ordered, option=orjson.OPT_NON_STR_KEYS), values

    def _refused(self, what: str) -> StateNotStoredError:
        return StateNotStoredError(f"{self._at} made a state that cannot be stored: {what}", hint=_HINT)


def state_type(projection: type[BaseProjection[Any]]) -> Any:
    """The type argument of a projection class; None if there is none, or it is Any."""
    for base in projection.__mro__:
        for declared in getattr(base, "__orig_bases__", ()):
            origin = get_origin(declared)
            if isinstance(origin, type) and issubclass(origin, BaseProjection):
                (kind,) = get_args(declared)
                if not isinstance(kind, TypeVar):
                    return None if kind is Any else kind
    return None


def _is_json(kind: Any) -> bool:
    """Whether the type is plain JSON, such as `dict[str, int]`, and is stored unchanged."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin not in (dict, list) or (origin is dict and inner[0] is not str):
        return False
    return all(arg in (str, Any, *_PLAIN) or _is_json(arg) for arg in inner)


def _may_hold_floats(schema: Any) -> bool:
    """Whether a JSON Schema allows fractional numbers, or any value."""
    if schema is True or schema == {}:
        return True
    if isinstance(schema, list):
        return any(map(_may_hold_floats, schema))
    if not isinstance(schema, Mapping):
        return False
    kind = schema.get("type")
    if kind == "number":
        return True
    if kind == "object" and "properties" not in schema and "additionalProperties" not in schema:
        return True
    if kind == "array" and "items" not in schema and "prefixItems" not in schema:
        return True
    if not schema.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}:
        return True
    parts = [schema[name] for name in ("items", "prefixItems", "anyOf", "oneOf", "allOf") if name in schema]
    for name in ("properties", "$defs", "patternProperties"):
        parts.extend(schema.get(name, {}).values())
    return any(map(_may_hold_floats, [*parts, schema.get("additionalProperties", False)]))


def _not_finite(value: Any, path: str) -> str | None:
    """The path of a NaN or infinity; None if there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    path = short_path(path)
    if isinstance(value, Mapping):
        found = (_not_finite(item, f"{path}.{key}") for key, item in value.items())
        return next(filter(None, found), None)
    if isinstance(value, list | tuple | set | frozenset):
        found = (_not_finite(item, f"{path}.{index}") for index, item in enumerate(value))
        return next(filter(None, found), None)
    return None


def _ordered(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(value, key=lambda item: orjson.dumps(item, default=_ordered))
    return to_jsonable_python(value)
