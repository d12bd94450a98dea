"""Resolution of `MODULE[:NAME]` references to agent classes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import Any, Final

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.agent.base import BaseAgent
from noesium_stream.agent.compiling import AnyGraph, compiled
from noesium_stream.agent.from_graph import agent_from_graph
from noesium_stream.agent.reference import load_module, parse_reference
from noesium_stream.errors import AgentLoadError
from noesium_stream.event import Catalogue, standard_catalogue

_EXPORT: Final = "AGENT"
_GRAPH: Final = "graph"
"""The name of a module's only graph, or of the one that its other graphs are parts of."""
_SHOWN: Final = 5


def load_agent(reference: str, agent_type: str | None = None) -> type[BaseAgent]:
    """Import an agent: `agents.researcher` (its `AGENT`) or `agents.researcher:Researcher`.

    A LangGraph graph, compiled or not, is an agent too: `triage:graph` has the type `triage`, the module's
    `VERSION` and its `MIGRATIONS`. Modules in the current folder can be imported; a module may also be given
    by its file, `triage.py:graph`. Without a name and without an `AGENT` it is the module's `graph`, or the
    only agent or graph that it has. With `agent_type` a graph has that type, independent of its module's
    name: `triage_v1:graph` is another version of `triage`.

    Raises:
        AgentLoadError: there is no such module, its import fails, it holds no agent, or none of that type, or
            its graph does not compile.
    """
    module, name, found = resolve(reference)
    if isinstance(found, StateGraph | CompiledStateGraph):
        return agent_from_graph(
            _compiled(found, f"{module.__name__}:{name}"),
            agent_type or _type_of(module.__name__, name),
            version=getattr(module, "VERSION", "1.0.0"),
            migrations=getattr(module, "MIGRATIONS", ()),
        )
    if not isinstance(found, type) or not issubclass(found, BaseAgent):
        raise AgentLoadError(f"{module.__name__} has no agent {name}.", hint=_advice(module))
    if agent_type is not None and found.agent_type != agent_type:
        raise AgentLoadError(
            f"{reference} is of the type {found.agent_type}, and no version of {agent_type}.",
            hint="A class says its own: agent_type.",
        )
    return found


def resolve(reference: str) -> tuple[ModuleType, str, Any]:
    """Import the module of a reference; return it with the name that is meant, and what it names.

    Raises:
        AgentLoadError: there is no such module, its import fails, or it has not that name, or several agents
            and the reference does not say which.
    """
    written, name = parse_reference(reference)
    module = load_module(written)
    name = name or _default(module)
    if not hasattr(module, name):
        raise AgentLoadError(f"{module.__name__} has no {name}.", hint=_advice(module))
    return module, name, getattr(module, name)


def _default(module: ModuleType) -> str:
    """The name that a reference without one means."""
    names = _agents_in(module)
    if hasattr(module, _EXPORT) or not names:
        return _EXPORT
    if isinstance(getattr(module, _GRAPH, None), StateGraph | CompiledStateGraph):
        return _GRAPH
    if len(names) > 1:
        raise AgentLoadError(f"{module.__name__} has several agents.", hint=_advice(module))
    return names[0]


def _agents_in(module: ModuleType) -> list[str]:
    """The names of a module's graphs, and of the agent classes that are defined in it; one for each."""
    found = {
        id(value): name
        for name, value in sorted(vars(module).items(), reverse=True)
        if isinstance(value, StateGraph | CompiledStateGraph)
        or (isinstance(value, type) and issubclass(value, BaseAgent) and value.__module__ == module.__name__)
    }
    return sorted(found.values())


def _advice(module: ModuleType) -> str:
    names = _agents_in(module)
    if names:
        return f"Say which: {', '.join(f'{module.__name__}:{name}' for name in names[:_SHOWN])}."
    return (
        "An agent module names its class: AGENT = MyAgent (a subclass of BaseAgent). "
        "MODULE:NAME may also be a LangGraph graph."
    )


@cache
def _compiled(graph: AnyGraph, name: str) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Compile a graph once: LangGraph compiles one with node defaults only once."""
    return graph if isinstance(graph, CompiledStateGraph) else compiled(name, lambda: graph)


def _type_of(module_name: str, name: str) -> str:
    """The agent type of a graph: its name, or the module's name if the graph is just called `graph`."""
    own = name if name.lower() not in ("agent", "graph", "app") else module_name.rpartition(".")[2]
    return own.lower()


def catalogue_of(agents: Iterable[type[BaseAgent]]) -> Catalogue:
    """The standard events and those of the given agents.

    Raises:
        EventValidationError: two events have the same type and version but differ.
    """
    catalogue = standard_catalogue()
    for agent in agents:
        for event in agent.events:
            catalogue.register(event)
    return catalogue
