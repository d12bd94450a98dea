"""Agent class from a skill: each of its steps is a node, and others call it as `skill.NAME` (RFC-2003 §9)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Annotated, Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent.base import BaseGraphicAgent
from noesium_stream.capabilities.capability_set import CapabilitySet
from noesium_stream.errors import CapabilityError, ConfigError, ToolInputError
from noesium_stream.event.standard import Capability, DeterminismClass, SideEffectClass
from noesium_stream.kernel import kernel_node
from noesium_stream.log.topics import agent_name
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.context import Mode
from noesium_stream.tool.convert import atomic_tools
from noesium_stream.tool.skill.skill import Skill, SkillRun, tool_of_step
from noesium_stream.tool.skill.step import SkillState, begin, perform
from noesium_stream.tool.toolkit import AsyncBaseToolkit

_EFFECTS: Final = (SideEffectClass.PURE, SideEffectClass.IDEMPOTENT, SideEffectClass.EXTERNAL)
"""Classes of side effects, the safest first."""
_CALLS_TOOLS: Final = kernel_node(deterministic=False, entropy_sources=["tools"])


class _State(TypedDict, total=False):
    """`SkillState` with reducers; a function has a `result` instead of outputs."""

    input: dict[str, Any]
    outputs: Annotated[dict[str, Any], operator.or_]
    rounds: Annotated[dict[str, int], operator.or_]
    next: str
    result: Any


def agent_from_skill(
    skill: Skill,
    tools: Sequence[Any],
    *,
    agent_type: str | None = None,
    permissions: Sequence[str] | None = None,
    mode: str | None = None,
) -> type[BaseGraphicAgent]:
    """An agent class that offers a skill as the capability `skill.NAME`, with the skill's schemas.

        AGENT = agent_from_skill(BRIEF, [search, summarise])

    Other agents call it with `await step.invoke("skill.brief", {"topic": "rain"})`. A run executes the skill:
    a node for each of its steps, or one for its function. Each call of a tool is one of `Step.tool`, with its
    journal, permissions and questions. The capability is as safe to repeat as its least safe tool.

    Args:
        skill: the skill.
        tools: what an agent may name as its `tools`, with those of the skill among them.
        agent_type: names its topics for good; by default the skill's name.
        permissions: what it may do at most, as the class attribute of that name.
        mode: as the class attribute of that name (see `Mode`).

    Raises:
        ToolNotFoundError: a tool of the skill is not among them.
        ConfigError: the agent type or the capability is not valid.
    """
    own = _own_tools(skill, tools)
    chosen: dict[str, Any] = {
        "agent_type": agent_name(agent_type or re.sub(r"[^a-z0-9_-]", "-", skill.name.lower())),
        "version": skill.version,
        "capabilities": tuple(CapabilitySet([_capability(skill, own)])),
        "tools": tuple(tools),
    }
    limits = {"permissions": None if permissions is None else tuple(permissions), "mode": mode and Mode(mode)}
    chosen.update((name, value) for name, value in limits.items() if value is not None)
    build = _function_graph if skill.function is not None else _steps_graph

    class OfSkill(BaseGraphicAgent):
        def get_state_class(self) -> type[Any]:
            return _State

        def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
            return build(skill)

        def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
            try:
                skill.check_input(input)
            except ToolInputError as error:
                raise CapabilityError(error.message) from None
            return {"input": input} if skill.function else dict(begin(skill.name, skill.steps, input))

        def result(self, state: dict[str, Any]) -> Any:
            return state["result"] if skill.function else skill.result_of(_whole(state))

        @classmethod
        def check_input(cls, input: dict[str, Any]) -> None:
            try:
                skill.check_input(input)
            except ToolInputError as error:
                raise ConfigError(error.message) from None

    for name, value in chosen.items():
        setattr(OfSkill, name, value)
    OfSkill.__name__ = OfSkill.__qualname__ = chosen["agent_type"]
    return OfSkill


def _own_tools(skill: Skill, tools: Sequence[Any]) -> list[AtomicTool]:
    """The skill's tools; those of a server that is not connected yet are not known here."""
    found = {tool.name: tool for one in tools for tool in atomic_tools(one)}
    if not any(isinstance(one, AsyncBaseToolkit) for one in tools):
        skill.tools_from(found.values())
    return [found[name] for name in skill.tool_names if name in found]


def _capability(skill: Skill, tools: Sequence[AtomicTool]) -> Capability:
    classes = [tool.side_effect_class for tool in tools]
    if len(tools) < len(skill.tool_names):
        classes.append(SideEffectClass.EXTERNAL)
    effects = max(classes, key=_EFFECTS.index, default=_EFFECTS[0])
    deterministic = len(tools) == len(skill.tool_names) and all(
        tool.determinism_class is DeterminismClass.DETERMINISTIC for tool in tools
    )
    return Capability(
        id=skill.skill_id,
        version=skill.version,
        description=skill.description,
        input_schema=dict(skill.input_schema),
        output_schema=dict(skill.output_schema or {}),
        side_effects=effects,
        determinism_class=DeterminismClass.DETERMINISTIC
        if deterministic
        else DeterminismClass.NONDETERMINISTIC,
        tags=["category:skill", *(f"tool:{name}" for name in skill.tool_names)],
    )


def _steps_graph(skill: Skill) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(_State)
    ways: dict[Hashable, str] = {END: END, **{step.name: step.name for step in skill.steps}}
    for at, step in enumerate(skill.steps):
        graph.add_node(step.name, _step_node(skill, at))
        graph.add_conditional_edges(step.name, _next, ways)
    graph.add_conditional_edges(START, _next, ways)
    return graph


def _step_node(skill: Skill, at: int) -> Callable[..., Any]:
    do = partial(perform, skill.name, skill.steps, at)

    @_CALLS_TOOLS
    async def step(state: _State) -> dict[str, Any]:
        return dict(await do(_whole(dict(state)), tool_of_step))

    step.__name__ = step.__qualname__ = skill.steps[at].name
    return step


def _function_graph(skill: Skill) -> StateGraph[Any, Any, Any, Any]:
    function = skill.function
    assert function is not None

    @_CALLS_TOOLS
    async def execute(state: _State) -> dict[str, Any]:
        return {"result": skill.checked_output(await function(SkillRun(skill, tool_of_step), state["input"]))}

    graph = StateGraph(_State)
    graph.add_node("execute", execute)
    graph.add_edge(START, "execute")
    graph.add_edge("execute", END)
    return graph


def _next(state: _State) -> str:
    return state["next"] or END


def _whole(state: dict[str, Any]) -> SkillState:
    return {
        "input": state["input"],
        "outputs": state.get("outputs", {}),
        "rounds": state.get("rounds", {}),
        "next": state.get("next", ""),
    }
