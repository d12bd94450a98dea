"""Agent class from a LangGraph graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, ValidationError

from noesium_stream.agent.base import BaseGraphicAgent, check_keys
from noesium_stream.agent.capability import offered_node
from noesium_stream.agent.compiling import AnyGraph, compiled
from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.config import ExecutionMode
from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard import Capability
from noesium_stream.kernel import Durability
from noesium_stream.kernel.callable_reference import Undo
from noesium_stream.kernel.migration.migration import Migration
from noesium_stream.log.topics import agent_name

_SHOWN: Final = 3


def agent_from_graph(
    graph: AnyGraph,
    agent_type: str = "sample",
    *,
    version: str = "1.0.0",
    max_supersteps: int = BaseGraphicAgent.max_supersteps,
    durability: Durability = Durability.ASYNC,
    execution_mode: ExecutionMode = ExecutionMode.PRAGMATIC,
    capabilities: Sequence[Capability | Callable[..., Any]] = (),
    companions: tuple[str, ...] = (),
    events: tuple[type[DomainEvent], ...] = (),
    on_failure: Undo | None = None,
    migrations: Sequence[Migration] = (),
) -> type[BaseGraphicAgent]:
    """An agent class whose runs execute `graph`, compiled or not; its input is the graph's first state.

    `agent_type` names its topics for good: choose your own outside of tests. `capabilities` are those that it
    offers to other agents: `tool_capability("shop", "price")`, or the node that ends a run, marked by
    `@capability`. `companions` are agents that `noesium
    run` also starts, `events` its own event types. `on_failure` is the last compensation of a run that fails
    or is cancelled: see `BaseGraphicAgent`. The class belongs to the module that calls this, as if it were
    written there: its runs may name compensations of that module, and of those that it imports.

    Raises:
        ConfigError: `agent_type` is not a valid part of a topic name, or a capability is not valid.
    """
    chosen = {
        "agent_type": agent_name(agent_type),
        "version": version,
        "max_supersteps": max_supersteps,
        "durability": durability,
        "execution_mode": execution_mode,
        "capabilities": tuple(
            CapabilitySet(
                one if isinstance(one, Capability) else offered_node(one, agent_type) for one in capabilities
            )
        ),
        "companions": companions,
        "events": events,
        "on_failure": staticmethod(on_failure) if callable(on_failure) else on_failure,
        "migrations": tuple(migrations),
        "__module__": sys._getframe(1).f_globals.get("__name__", __name__),
    }

    @cache
    def compiled_graph() -> CompiledStateGraph[Any, Any, Any, Any]:
        return graph if isinstance(graph, CompiledStateGraph) else compiled(agent_type, lambda: graph)

    class FromGraph(BaseGraphicAgent):
        @property
        def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
            """The compiled graph, one for all agents: LangGraph compiles one with node defaults only once."""
            return compiled_graph()

        def get_state_class(self) -> type[Any]:
            return dict

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            return graph.builder if isinstance(graph, CompiledStateGraph) else graph

        @classmethod
        def input_from_question(cls, question: str, options: BaseModel) -> dict[str, Any]:
            keys = _state_keys(graph)
            if "question" not in keys:
                raise ConfigError(
                    f"The graph {cls.agent_type} takes no question: its state has {', '.join(keys)}.",
                    hint="Give its first state: --input JSON",
                )
            return super().input_from_question(question, options)

        @classmethod
        def check_input(cls, input: dict[str, Any]) -> None:
            _check_state(graph.builder if isinstance(graph, CompiledStateGraph) else graph, input)

    for name, value in chosen.items():
        setattr(FromGraph, name, value)
    return FromGraph


def _check_state(graph: StateGraph[Any, Any, Any, Any], first: dict[str, Any]) -> None:
    """Refuse keys that the state does not have: LangGraph drops them.

    Only a pydantic model checks their values.
    """
    schema = graph.input_schema
    channels = graph.schemas[schema]
    if "__root__" not in channels:
        check_keys(schema.__name__, channels, first)
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return
    try:
        schema.model_validate(first)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}" for one in error.errors()]
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise ConfigError(
            f"The input is no {schema.__name__}: {'; '.join(faults[:_SHOWN])}{more}.",
            hint=f"The state's fields: {', '.join(schema.model_fields)}.",
        ) from error


def _state_keys(graph: AnyGraph) -> list[str]:
    builder = graph.builder if isinstance(graph, CompiledStateGraph) else graph
    return sorted(name for name in builder.channels if not name.startswith(("__", "branch:", "join:")))
