"""Agent class from functions: it offers them as tools, and each run calls one (RFC-1001 §12.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent.base import BaseGraphicAgent
from noesium_stream.agent.capability import mark_of, offered_function
from noesium_stream.agent.signature import KEY, Signature, signature_of
from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.capabilities.tools import tool_capability
from noesium_stream.errors import CapabilityError, ConfigError
from noesium_stream.event.standard import Capability, CapabilityType, SideEffectClass
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.callable_reference import takes_key
from noesium_stream.log.topics import agent_name


class _Asked(TypedDict, total=False):
    tool: str
    arguments: dict[str, Any]
    result: Any


class _Tool(NamedTuple):
    """A function; `call` converts arguments to the declared types."""

    signature: Signature
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

    A function that is marked by `@capability` is a tool of the toolkit, and a capability of its own id as
    well; what the mark says of its side effects holds for both.

    Raises:
        ConfigError: a name is not valid for an agent type, a toolkit or a tool; two tools have the same name;
            a function has parameters without names, or of types without a schema.
    """
    offered, named, also = _offered(agent_type, toolkit, tools, version, effect_class)
    kind, kind_version = agent_name(agent_type), version

    @kernel_node(deterministic=False, entropy_sources=[f"toolkit:{toolkit}"])
    async def call(state: _Asked) -> dict[str, Any]:
        tool = offered[state["tool"]]
        result = await current_step().effect(
            tool.capability.id, tool.call, state["arguments"], effect_class=tool.capability.side_effects
        )
        return {"result": result}

    class OfTools(BaseGraphicAgent):
        agent_type = kind
        version = kind_version
        capabilities = tuple(CapabilitySet([*(tool.capability for tool in offered.values()), *also]))

        def get_state_class(self) -> type[Any]:
            return _Asked

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            graph = StateGraph(_Asked)
            graph.add_node("call", call)
            graph.add_edge(START, "call")
            graph.add_edge("call", END)
            return graph

        def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
            name = named.get(capability_id or "")
            if name is None:
                raise CapabilityError(
                    f"{capability_id or 'A run without a capability'} is no tool of {kind}; it offers "
                    f"{', '.join(offered_tool.capability.id for offered_tool in offered.values())}.",
                    hint=f'Call one from a node: await step.call_tool("{toolkit}", NAME, {{...}}).',
                )
            offered[name].signature.check(capability_id or name, input)
            return {"tool": name, "arguments": input}

        def result(self, state: dict[str, Any]) -> Any:
            return state["result"]

    OfTools.__name__ = OfTools.__qualname__ = kind
    return OfTools


def _offered(
    agent_type: str,
    toolkit: str,
    tools: Sequence[Callable[..., Any]],
    version: str,
    effect_class: SideEffectClass,
) -> tuple[dict[str, _Tool], dict[str, str], list[Capability]]:
    """The tools by name, their names by the ids of capabilities, and what is offered beside the toolkit."""
    offered: dict[str, _Tool] = {}
    named: dict[str, str] = {}
    also: list[Capability] = []
    for function in tools:
        name = _name_of(function)
        if name in offered:
            raise ConfigError(f"The toolkit {toolkit} has two tools {name}.", hint="Rename one of them.")
        mark = mark_of(function)
        effects = (mark and mark.side_effects) or effect_class
        tool = offered[name] = _tool_of(function, toolkit, version, effects)
        named[tool.capability.id] = name
        if mark is not None:
            offer = offered_function(
                function, agent_type, side_effects=effects, capability_type=CapabilityType.REMOTE_TOOL
            )
            also.append(offer[0])
            named[also[-1].id] = name
    if not offered:
        raise ConfigError(f"The toolkit {toolkit} has no tools.", hint="Give the functions to offer.")
    return offered, named, also


def _tool_of(
    function: Callable[..., Any], toolkit: str, version: str, effect_class: SideEffectClass
) -> _Tool:
    name = _name_of(function)
    signature = signature_of(function, name, f"the tool {toolkit}.{name}")
    capability = tool_capability(
        toolkit,
        name,
        version=version,
        description=inspect.getdoc(function) or "",
        input_schema=signature.input_schema,
        output_schema=signature.output_schema,
        side_effects=effect_class,
    )
    return _Tool(signature, _typed(function, signature), capability)


def _name_of(function: Callable[..., Any]) -> str:
    name: str = getattr(function, "__name__", type(function).__name__)
    return name


def _typed(function: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    """Wrap `function` to take JSON values and convert them to its declared types."""
    keyed = takes_key(function)

    def call(given: dict[str, Any], idempotency_key: str) -> Any:
        return function(**signature.typed(given), **({KEY: idempotency_key} if keyed else {}))

    async def call_async(given: dict[str, Any], idempotency_key: str) -> Any:
        return await call(given, idempotency_key)

    return call_async if inspect.iscoroutinefunction(function) else call
