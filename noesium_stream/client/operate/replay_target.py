"""Replay target: loads the code that a run is replayed against from `MODULE[:NAME]`.

NAME is an agent class (default: the module's `AGENT`), a LangGraph graph, compiled or not, or a function
without parameters that returns one. The agent is not started: `start` prepares it for effects, and a replay
calls none.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from pydantic import ValidationError

from noesium_stream.agent import AgentContext, BaseGraphicAgent
from noesium_stream.agent.compiling import compiled
from noesium_stream.agent.load import load_agent, resolve
from noesium_stream.clock import SystemClock
from noesium_stream.errors import AgentLoadError, ConfigError
from noesium_stream.event.envelope import AgentRef
from noesium_stream.kernel import graph_ref
from noesium_stream.kernel.verify.verifier import UNVERSIONED, ReplayTarget
from noesium_stream.log.port import EventLog


def load_target(
    reference: str,
    log: EventLog,
    options: Mapping[str, Any] | None = None,
    home: Path | None = None,
    llm_config: Mapping[str, Any] | None = None,
) -> ReplayTarget:
    """Load the code of a reference.

    Args:
        reference: `MODULE` or `MODULE:NAME`.
        log: the log for an agent's context.
        options: fields of an agent's `Options`.
        home: an agent's home; default: the current folder.
        llm_config: sampling settings of an agent's model, as recorded in its calls (see `AgentConfig`).

    Raises:
        AgentLoadError: there is no such module, its import fails, or NAME cannot be replayed.
        ConfigError: an agent's options are not valid.
    """
    _, name, found = resolve(reference)
    if isinstance(found, type) and issubclass(found, BaseGraphicAgent):
        return agent_target(found, log, options, home, reference, llm_config)
    if isinstance(found, StateGraph | CompiledStateGraph):
        kind = load_agent(reference)
        if issubclass(kind, BaseGraphicAgent):
            # The new code of a graph may be in another module than the code that made the runs.
            target = agent_target(kind, log, options, home, reference, llm_config)
            return dataclasses.replace(target, agent_type=None)
    if callable(found) and not isinstance(found, type | StateGraph | CompiledStateGraph):
        found = _called(found, reference)
    if isinstance(found, StateGraph):
        graph = found
        found = compiled(reference, lambda: graph)
    if not isinstance(found, CompiledStateGraph):
        raise AgentLoadError(
            f"{reference} is {type(found).__name__}, and no agent and no graph.",
            hint="Give MODULE:NAME of an agent class, a graph, or a function that returns a graph.",
        )
    return ReplayTarget(found, graph_ref(found, name, UNVERSIONED), reference=reference)


def agent_target(
    kind: type[BaseGraphicAgent],
    log: EventLog,
    options: Mapping[str, Any] | None = None,
    home: Path | None = None,
    reference: str | None = None,
    llm_config: Mapping[str, Any] | None = None,
) -> ReplayTarget:
    """Make the replay target of an agent class.

    Raises:
        ConfigError: an option is not valid, or a required one is missing.
    """
    try:
        chosen = kind.Options.model_validate(dict(options or {}))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "options"
        raise ConfigError(
            f"option {field} of {kind.agent_type}: {first['msg']}.", hint="Give it with -o NAME=VALUE."
        ) from error
    clock = SystemClock()
    ref = AgentRef(kind.agent_type, kind.agent_type, "replay", clock.uuid7())
    context = AgentContext(home or Path.cwd(), log, clock, ref, lambda line: None, llm_config or {})
    agent = kind(chosen, context)
    return ReplayTarget(
        graph=agent.graph,
        ref=graph_ref(agent.graph, kind.agent_type, kind.version),
        initial_state=agent.initial_state,
        result=agent.result,
        recursion_limit=kind.max_supersteps,
        agent_type=kind.agent_type,
        reference=reference,
        mode=kind.execution_mode,
        agent=agent,
        versions=agent.versions,
    )


def _called(function: Any, reference: str) -> Any:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise AgentLoadError(
            f"{reference} is a function that wants arguments.", hint="One without arguments is called."
        ) from error
    try:
        return function()
    except Exception as error:
        raise AgentLoadError(f"{reference} fails: {type(error).__name__}: {error}") from error
