"""Agent class from functions: it offers them as tools, and each run calls one (RFC-1001 §12.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from langgraph.graph import StateGraph

from noesium_stream.agent.base import BaseGraphicAgent
from noesium_stream.agent.call_graph import ToolCallState, call_graph
from noesium_stream.agent.capability import mark_of, offered_function
from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.capabilities.tools import tool_capability
from noesium_stream.errors import CapabilityError, ConfigError, ToolInputError
from noesium_stream.event.standard import Capability, CapabilityType, SideEffectClass
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.kernel.callable_reference import takes_key
from noesium_stream.log.topics import agent_name
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.convert import atomic_tools, is_langchain
from noesium_stream.tool.signature import KEY, Signature, signature_of
from noesium_stream.tool.toolkit import BaseToolkit


class _Tool(NamedTuple):
    """A function, whose `call` takes JSON values; or a tool that the executor calls."""

    check: Callable[[str, dict[str, Any]], None]
    call: Callable[..., Any] | AtomicTool
    capability: Capability


def agent_from_tools(
    agent_type: str,
    toolkit: str,
    tools: Sequence[Any],
    *,
    version: str = "1.0.0",
    effect_class: SideEffectClass = SideEffectClass.EXTERNAL,
) -> type[BaseGraphicAgent]:
    """An agent class that offers functions, sync or async, as the tools of a toolkit, by their names.

    It offers `AtomicTool`s, toolkits and tools of LangChain, too: these are its own `tools`, and each run
    calls one as `Step.tool` does, within what the agent may do.

        AGENT = agent_from_tools("shop", "shop", [price, order])

    Other agents call them with `await step.call_tool("shop", "price", {"item": "bread"})`. Schemas of
    arguments and result are derived from the annotations, and arguments are validated before each call. Each
    call is an effect of `effect_class` in a run of its own: written before and after. A parameter
    `idempotency_key` receives the effect's key (see `Step.effect`).

    A function that is marked by `@capability` is a tool of the toolkit, and a capability of its own id as
    well; what the mark says of its side effects holds for both.

    Raises:
        ConfigError: a name is not valid for an agent type, a toolkit or a tool; two tools have the same name;
            a function has parameters without names, or of types without a schema; a tool is not valid, or its
            toolkit finds its tools only when it is started.
    """
    offered, named, also = _offered(agent_type, toolkit, tools, version, effect_class)
    kind, kind_version, given_tools = agent_name(agent_type), version, tuple(tools)

    @kernel_node(deterministic=False, entropy_sources=[f"toolkit:{toolkit}"])
    async def call(state: ToolCallState) -> dict[str, Any]:
        tool = offered[state["tool"]]
        if isinstance(tool.call, AtomicTool):
            return {"result": await current_step().tool(tool.call.name, **state["arguments"])}
        result = await current_step().effect(
            tool.capability.id, tool.call, state["arguments"], effect_class=tool.capability.side_effects
        )
        return {"result": result}

    class OfTools(BaseGraphicAgent):
        agent_type = kind
        version = kind_version
        tools = tuple(given for given in given_tools if not _is_function(given))
        capabilities = tuple(CapabilitySet([*(tool.capability for tool in offered.values()), *also]))

        def get_state_class(self) -> type[Any]:
            return ToolCallState

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            return call_graph(call)

        def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
            name = named.get(capability_id or "")
            if name is None:
                raise CapabilityError(
                    f"{capability_id or 'A run without a capability'} is no tool of {kind}; it offers "
                    f"{', '.join(offered_tool.capability.id for offered_tool in offered.values())}.",
                    hint=f'Call one from a node: await step.call_tool("{toolkit}", NAME, {{...}}).',
                )
            offered[name].check(capability_id or name, input)
            return {"tool": name, "arguments": input}

        def result(self, state: dict[str, Any]) -> Any:
            return state["result"]

    OfTools.__name__ = OfTools.__qualname__ = kind
    return OfTools


def _offered(
    agent_type: str,
    toolkit: str,
    tools: Sequence[Any],
    version: str,
    effect_class: SideEffectClass,
) -> tuple[dict[str, _Tool], dict[str, str], list[Capability]]:
    """The tools by name, their names by the ids of capabilities, and what is offered beside the toolkit."""
    offered: dict[str, _Tool] = {}
    named: dict[str, str] = {}
    also: list[Capability] = []
    single = [one for given in tools for one in ([given] if _is_function(given) else atomic_tools(given))]
    for function in single:
        name = function.name if isinstance(function, AtomicTool) else _name_of(function)
        if name in offered:
            raise ConfigError(f"The toolkit {toolkit} has two tools {name}.", hint="Rename one of them.")
        if isinstance(function, AtomicTool):
            made = offered[name] = _tool_of_tool(function, toolkit)
            named[made.capability.id] = name
            continue
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
    return _Tool(signature.check, _typed(function, signature), capability)


def _tool_of_tool(tool: AtomicTool, toolkit: str) -> _Tool:
    capability = tool_capability(
        toolkit,
        tool.name,
        version=tool.version,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        side_effects=tool.side_effect_class,
    )

    def check(offered_as: str, given: dict[str, Any]) -> None:
        try:
            tool.check_input(given)
        except ToolInputError as error:
            raise CapabilityError(f"{offered_as} does not take these arguments: {error.message}") from None

    return _Tool(check, tool, capability)


def _is_function(given: Any) -> bool:
    """Whether it is a function, and not a tool in another form."""
    return not isinstance(given, AtomicTool | BaseToolkit) and not is_langchain(given)


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
