"""Agent class from functions: it offers them as tools, and each run calls one (RFC-1001 §12.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypedDict, get_type_hints

from langgraph.graph import END, START, StateGraph
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

from noesium_stream.agent.base import BaseGraphicAgent
from noesium_stream.capability.tools import tool_capability
from noesium_stream.errors import CapabilityError, ConfigError
from noesium_stream.event.standard import Capability, SideEffectClass
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.callable_reference import takes_key
from noesium_stream.log.topics import agent_name

_KEY: Final = "idempotency_key"
_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class _Asked(TypedDict, total=False):
    tool: str
    arguments: dict[str, Any]
    result: Any


class _Tool(NamedTuple):
    """A function and its argument model; `call` converts arguments to the declared types."""

    arguments: type[BaseModel]
    call: Callable[..., Any]
    capability: Capability


def agent_from_tools(
    agent_type: str,
    toolkit: str,
    tools: Sequence[Callable[..., Any]],
    *,
    version: str = "1.0.0",
    effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
) -> type[BaseGraphicAgent]:
    """An agent class that offers functions, sync or async, as the tools of a toolkit, by their names.

        AGENT = agent_from_tools("shop", "shop", [price, order])

    Other agents call them with `await step.call_tool("shop", "price", {"item": "bread"})`. Schemas of
    arguments and result are derived from the annotations, and arguments are validated before each call. Each
    call is an effect of `effect_class` in a run of its own: written before and after. A parameter
    `idempotency_key` receives the effect's key (see `Step.effect`).

    Raises:
        ConfigError: a name is not valid for an agent type, a toolkit or a tool; two tools have the same name;
            a function has parameters without names, or of types without a schema.
    """
    offered: dict[str, _Tool] = {}
    for function in tools:
        name = getattr(function, "__name__", type(function).__name__)
        if name in offered:
            raise ConfigError(f"The toolkit {toolkit} has two tools {name}.", hint="Rename one of them.")
        offered[name] = _tool_of(function, toolkit, name, version, effect_class)
    if not offered:
        raise ConfigError(f"The toolkit {toolkit} has no tools.", hint="Give the functions to offer.")
    kind, kind_version = agent_name(agent_type), version

    @kernel_node(deterministic=False, entropy_sources=[f"toolkit:{toolkit}"])
    async def call(state: _Asked) -> dict[str, Any]:
        tool = offered[state["tool"]]
        result = await current_step().effect(
            tool.capability.id, tool.call, state["arguments"], effect_class=effect_class
        )
        return {"result": result}

    class OfTools(BaseGraphicAgent):
        agent_type = kind
        version = kind_version
        capabilities = tuple(tool.capability for tool in offered.values())

        def get_state_class(self) -> type[Any]:
            return _Asked

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            graph = StateGraph(_Asked)
            graph.add_node("call", call)
            graph.add_edge(START, "call")
            graph.add_edge("call", END)
            return graph

        def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
            name = (capability_id or "").removeprefix(f"tool.{toolkit}.")
            tool = offered.get(name)
            if tool is None:
                raise CapabilityError(
                    f"{capability_id or 'A run without a capability'} is no tool of {kind}; it offers "
                    f"{', '.join(offered_tool.capability.id for offered_tool in offered.values())}.",
                    hint=f'Call one from a node: await step.call_tool("{toolkit}", NAME, {{...}}).',
                )
            _checked(tool, input)
            return {"tool": name, "arguments": input}

        def result(self, state: dict[str, Any]) -> Any:
            return state["result"]

    OfTools.__name__ = OfTools.__qualname__ = kind
    return OfTools


def _tool_of(
    function: Callable[..., Any], toolkit: str, name: str, version: str, effect_class: SideEffectClass
) -> _Tool:
    try:
        hints = get_type_hints(function)
        arguments = _arguments_of(function, name, hints)
        input_schema = arguments.model_json_schema()
        output_schema = TypeAdapter(hints.get("return", Any)).json_schema()
    except (TypeError, ValueError, NameError, PydanticUserError) as error:
        raise ConfigError(
            f"No schema can be made of the tool {toolkit}.{name}: {error}",
            hint="Annotate its parameters and its result with types that have a JSON form.",
        ) from error
    capability = tool_capability(
        toolkit,
        name,
        version=version,
        description=inspect.getdoc(function) or "",
        input_schema=input_schema,
        output_schema=output_schema,
        side_effects=effect_class,
    )
    return _Tool(arguments, _typed(function, arguments), capability)


def _arguments_of(function: Callable[..., Any], name: str, hints: dict[str, Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _NAMED:
            raise ConfigError(
                f"The parameter {parameter} of the tool {name} has no name to give it by.",
                hint="A tool is called with arguments by name: no *args, **kwargs or positional-only ones.",
            )
        if parameter.name != _KEY:
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            # Use an alias: a parameter may have the name of one of the model's own attributes.
            field = Field(default, alias=parameter.name, title=parameter.name)
            fields[f"argument_{len(fields)}"] = (hints.get(parameter.name, Any), field)
    made: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    return made


def _checked(tool: _Tool, arguments: dict[str, Any]) -> None:
    try:
        tool.arguments.model_validate(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = first["msg"][:1].lower() + first["msg"][1:]
        names = ", ".join(field.alias or "" for field in tool.arguments.model_fields.values())
        raise CapabilityError(
            f"{tool.capability.id} does not take these arguments: {where}: {reason}.",
            hint=f"It takes {names or 'none'}.",
        ) from error


def _typed(function: Callable[..., Any], arguments: type[BaseModel]) -> Callable[..., Any]:
    """Wrap `function` to take JSON values and convert them to its declared types."""
    keyed = takes_key(function)

    def call(given: dict[str, Any], idempotency_key: str) -> Any:
        found = arguments.model_validate(given)
        aliases = {name: field.alias or name for name, field in arguments.model_fields.items()}
        typed = {aliases[name]: getattr(found, name) for name in found.model_fields_set}
        return function(**typed, **({_KEY: idempotency_key} if keyed else {}))

    async def call_async(given: dict[str, Any], idempotency_key: str) -> Any:
        return await call(given, idempotency_key)

    return call_async if inspect.iscoroutinefunction(function) else call
