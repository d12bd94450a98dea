"""What a graph's state declares: its keys, and the types of their values where they are known."""

from __future__ import annotations

from typing import Annotated, Any, get_type_hints

from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from noesium_stream.errors import ConfigError, StateError
from noesium_stream.kernel.typed import decode

_INTERNAL = ("__", "branch:", "join:")


def declared_keys(graph: CompiledStateGraph[Any, Any, Any, Any]) -> frozenset[str]:
    """The keys of the state, those without a value included; none for a state that is no record."""
    return frozenset(name for name in graph.channels if not name.startswith(_INTERNAL))


def check_value(graph: CompiledStateGraph[Any, Any, Any, Any], key: str, recorded: Any) -> None:
    """Refuse a value that the declared type of its key does not take; one that is not declared takes all.

    As lenient as pydantic is: the text of a date is taken for a date.

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
