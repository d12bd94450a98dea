"""A projection's states as bytes: the same state has the same bytes in every process (law 6).

States are JSON, written by pydantic for the projection's type argument. Sets have no order of their own: they
are sorted by their items' JSON text. The order of a dict is the one in which `apply` has filled it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, Generic, TypeVar, get_args, get_origin

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_core import PydanticSerializationError, to_jsonable_python

from noesium_stream.errors import ProjectionError, brief
from noesium_stream.projection.base import BaseProjection

TState = TypeVar("TState")

_PLAIN: Final = (int, str, bool, float, dict, list)


class StateCodec(Generic[TState]):
    """Writes and reads the states of one projection.

    Args:
        projection: its type argument (`BaseProjection[Account]`) says what a state is.

    Raises:
        ProjectionError: the type argument is nothing that pydantic knows.
    """

    def __init__(self, projection: BaseProjection[TState]) -> None:
        self._name = projection.name
        kind = state_type(type(projection))
        self._adapter: TypeAdapter[Any] | None = None
        self._sorted = False
        shape: Any = "json"
        if kind is not None and kind not in _PLAIN:
            try:
                self._adapter = TypeAdapter(kind)
                shape = self._adapter.json_schema(mode="serialization")
            except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, NameError) as error:
                raise ProjectionError(
                    f"The projection {self._name} has a state that cannot be stored: {brief(error)}",
                    hint="Let the state be a pydantic model, a dataclass, a TypedDict, or JSON values.",
                ) from error
            self._sorted = "uniqueItems" in orjson.dumps(shape).decode()
        self.shape: Final = hashlib.blake2b(
            orjson.dumps(shape, option=orjson.OPT_SORT_KEYS), digest_size=8
        ).hexdigest()
        """Tells one type of state from another; a file of another one is discarded."""

    def encode(self, state: TState) -> bytes:
        """The bytes of a state.

        Raises:
            ProjectionError: it holds what JSON cannot say.
        """
        try:
            if self._adapter is None:
                return orjson.dumps(state, option=orjson.OPT_PASSTHROUGH_DATACLASS)
            if self._sorted:
                return orjson.dumps(self._adapter.dump_python(state, mode="python"), default=_ordered)
            return self._adapter.dump_json(state, warnings="error")
        except (TypeError, ValueError, PydanticSerializationError) as error:
            raise ProjectionError(
                f"The projection {self._name} made a state that cannot be stored: {brief(error, 300)}",
                hint="Let `apply` return what its type argument says, made of values that JSON has.",
            ) from error

    def decode(self, data: bytes) -> TState:
        """The state of these bytes, a new object.

        Raises:
            ProjectionError: they are of another type of state.
        """
        try:
            if self._adapter is None:
                found: TState = orjson.loads(data)
                return found
            state: TState = self._adapter.validate_json(data)
            return state
        except (ValidationError, ValueError) as error:
            raise ProjectionError(
                f"A stored state of the projection {self._name} cannot be read: {brief(error, 300)}",
                hint="Count its `version` up when the state's type changes.",
            ) from error


def state_type(projection: type[BaseProjection[Any]]) -> Any:
    """The type argument that a projection was declared with; None where it has none."""
    for base in projection.__mro__:
        for declared in getattr(base, "__orig_bases__", ()):
            origin = get_origin(declared)
            if isinstance(origin, type) and issubclass(origin, BaseProjection):
                (kind,) = get_args(declared)
                if not isinstance(kind, TypeVar):
                    return None if kind is Any else get_origin(kind) if _is_json(kind) else kind
    return None


def _is_json(kind: Any) -> bool:
    """`dict[str, int]` and its like are stored as they are; what is inside may be anything else."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin not in (dict, list) or (origin is dict and inner[0] is not str):
        return False
    return all(arg in (int, str, bool, float, Any) or _is_json(arg) for arg in inner)


def _ordered(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=lambda item: orjson.dumps(item, default=_ordered))
    return to_jsonable_python(value)
