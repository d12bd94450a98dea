"""JSON Schemas of a function's arguments and result, from its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

from noesium_stream.errors import CapabilityError, ConfigError
from noesium_stream.kernel.step.answer import readable_schema
from noesium_stream.tool.context import ToolContext

KEY: Final = "idempotency_key"
"""A parameter that the kernel gives; it is no argument."""
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and returns: a model and an annotation, and both as JSON Schemas.

    `given` are the parameters that are no arguments: the idempotency key and the context.
    """

    arguments: type[BaseModel]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    returns: Any
    given: tuple[str, ...] = ()

    def check(self, offered_as: str, given: dict[str, Any]) -> None:
        """Refuse arguments that the function does not take.

        Raises:
            CapabilityError: names the first fault, and what is taken.
        """
        try:
            self.arguments.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            reason = first["msg"][:1].lower() + first["msg"][1:]
            names = ", ".join(field.alias or "" for field in self.arguments.model_fields.values())
            raise CapabilityError(
                f"{offered_as} does not take these arguments: {where}: {reason}.",
                hint=f"It takes {names or 'none'}.",
            ) from error

    def typed(self, given: dict[str, Any]) -> dict[str, Any]:
        """The given arguments, in the declared types; those left out have the function's defaults."""
        found = self.arguments.model_validate(given)
        aliases = {name: field.alias or name for name, field in self.arguments.model_fields.items()}
        return {aliases[name]: getattr(found, name) for name in found.model_fields_set}


def readable_result(returns: Any) -> Callable[[Any], Any]:
    """A function that makes JSON values of results of a declared type."""
    adapter = TypeAdapter(readable_schema(returns))
    return partial(adapter.dump_python, mode="json", warnings=False)


def signature_of(function: Callable[..., Any], name: str, what: str) -> Signature:
    """The signature of a function or a method (a parameter `self` is left out).

    Args:
        function: as it was defined: a method is not bound.
        name: its name, for the model of its arguments.
        what: what it is, for messages ("the tool shop.price").

    Raises:
        ConfigError: it has parameters without names, or of types without a schema.
    """
    try:
        hints = get_type_hints(function, include_extras=True)
        arguments = _arguments_of(function, name, what, hints)
        returns = hints.get("return", Any)
        given = tuple(name for name, hint in hints.items() if name != "return" and _is_given(name, hint))
        if KEY in inspect.signature(function).parameters:
            given = tuple(dict.fromkeys((*given, KEY)))
        return Signature(arguments, arguments.model_json_schema(), schema_of(returns), returns, given)
    except (TypeError, ValueError, NameError, PydanticUserError) as error:
        raise no_schema(what, error) from error


def schema_of(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of an annotation; a TypedDict is read on every version of Python.

    Raises what `no_schema` makes a `ConfigError` of.
    """
    return TypeAdapter(readable_schema(annotation)).json_schema()


def no_schema(what: str, error: Exception) -> ConfigError:
    """The error about annotations of which no schema can be made."""
    return ConfigError(
        f"No schema can be made of {what}: {str(error).splitlines()[0]}",
        hint="Annotate its parameters and its result with types that have a JSON form, defined above it in "
        "its module.",
    )


def _arguments_of(
    function: Callable[..., Any], name: str, what: str, hints: dict[str, Any]
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for at, parameter in enumerate(inspect.signature(function).parameters.values()):
        if at == 0 and parameter.name == "self":
            continue
        if parameter.kind not in _NAMED:
            raise ConfigError(
                f"The parameter {parameter} of {what} has no name to give it by.",
                hint="It is called with arguments by name: no *args, **kwargs or positional-only ones.",
            )
        if not _is_given(parameter.name, hints.get(parameter.name)):
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            # Use an alias: a parameter may have the name of one of the model's own attributes.
            field = Field(default, alias=parameter.name, title=parameter.name)
            hint = readable_schema(hints.get(parameter.name, Any))
            fields[f"argument_{len(fields)}"] = (hint, field)
    made: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return made


def _is_given(name: str, hint: Any) -> bool:
    return name == KEY or hint is ToolContext
