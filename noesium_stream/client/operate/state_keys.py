"""Declared keys of a graph's state, and the types of their values where they are known."""

from __future__ import annotations

from typing import Annotated, Any, get_type_hints

from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from noesium_stream.errors import ConfigError, StateError
from noesium_stream.kernel.reach import Reach
from noesium_stream.kernel.state.typed_json import building, decode

_INTERNAL = ("__", "branch:", "join:")


def declared_keys(graph: CompiledStateGraph[Any, Any, Any, Any]) -> frozenset[str]:
    """Return the declared keys of the state, with or without a value; empty if the state has no keys."""
    return frozenset(name for name in graph.channels if not name.startswith(_INTERNAL))


def check_value(graph: CompiledStateGraph[Any, Any, Any, Any], key: str, recorded: Any) -> None:
    """Refuse a value that is not valid for the declared type of its key; a key without a type takes all.

    The check is as lenient as pydantic: the text of a date is a valid date.

    Raises:
        ConfigError: names key and type.
    """
    schema = graph.builder.state_schema
    try:
        declared: Any = get_type_hints(schema)[key]
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            field = schema.model_fields[key]
            declared = Annotated[declared, field]
        adapter = TypeAdapter(declared)
        with building(Reach(graph).builds):
            value = decode(recorded)
    except (KeyError, NameError, TypeError, PydanticUserError, StateError):
        return
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join([key, *map(str, first["loc"])])
        raise ConfigError(
            f"The state's {path} does not take that value: {first['msg'][:1].lower()}{first['msg'][1:]}.",
            hint=f"{key} is declared in {schema.__name__}. Values are JSON; what is no JSON is text.",
        ) from error
