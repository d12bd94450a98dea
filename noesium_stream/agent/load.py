"""Resolution of `module[:Class]` references to agent classes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from types import ModuleType

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from noesium_stream.agent.base import BaseAgent
from noesium_stream.agent.from_graph import agent_from_graph
from noesium_stream.errors import AgentLoadError
from noesium_stream.event import Catalogue, standard_catalogue


def load_agent(reference: str, agent_type: str | None = None) -> type[BaseAgent]:
    """Import an agent: `agents.researcher` (its `AGENT`) or `agents.researcher:Researcher`.

    A LangGraph graph, compiled or not, is an agent too: `triage:graph` has the type `triage`, the module's
    `VERSION` and its `MIGRATIONS`. Modules in the current folder can be imported. With `agent_type` a graph
    has that type, independent of its module's name: `triage_v1:graph` is another version of `triage`.

    Raises:
        AgentLoadError: there is no such module, its import fails, or it holds no agent, or none of that type.
    """
    module_name, _, name = reference.partition(":")
    module = load_module(module_name)
    found = getattr(module, name or "AGENT", None)
    if isinstance(found, StateGraph | CompiledStateGraph):
        return agent_from_graph(
            found,
            agent_type or _type_of(module_name, name),
            version=getattr(module, "VERSION", "1.0.0"),
            migrations=getattr(module, "MIGRATIONS", ()),
        )
    if not isinstance(found, type) or not issubclass(found, BaseAgent):
        raise AgentLoadError(
            f"{module_name} has no agent {name or 'AGENT'}.",
            hint="An agent module names its class: AGENT = MyAgent (a subclass of BaseAgent). "
            "MODULE:NAME may also be a LangGraph graph.",
        )
    if agent_type is not None and found.agent_type != agent_type:
        raise AgentLoadError(
            f"{reference} is of the type {found.agent_type}, and no version of {agent_type}.",
            hint="A class says its own: agent_type.",
        )
    return found


def _type_of(module_name: str, name: str) -> str:
    """The agent type of a graph: its name, or the module's name if the graph is just called `graph`."""
    own = name if name.lower() not in ("", "agent", "graph", "app") else module_name.rpartition(".")[2]
    return own.lower()


def load_module(module_name: str) -> ModuleType:
    """Import a module of agents or graphs; modules in the current folder can be imported.

    Raises:
        AgentLoadError: there is no such module, or its import fails.
    """
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise AgentLoadError(
                f"There is no agent module {module_name!r}.",
                hint="Give it as MODULE or MODULE:CLASS, importable from the current folder.",
            ) from error
        raise _broken(module_name, error) from error
    except AgentLoadError:  # raised by the module, with its own advice
        raise
    except Exception as error:
        raise _broken(module_name, error) from error


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


def _broken(module_name: str, error: BaseException) -> AgentLoadError:
    return AgentLoadError(
        f"The agent module {module_name!r} cannot be imported: {type(error).__name__}: {error}",
        hint="Import it with python -c to see the whole traceback.",
    )
