"""Agent class whose runs call one tool of another agent, as that agent may (`noesium tools call`).

Decision record: it has a type of its own, `TYPE-call`. A run of the agent's own type could be taken by a
worker elsewhere, whose graph has another input. The rules of the policy, the workspace and the accepted
definitions are those of the agent; the new type registers no tools and offers nothing. The agent's own graph
is built, and not run: the tools of its `ToolNode`s are tools of the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import new_class
from typing import Any, ClassVar, Final

from langgraph.graph.state import CompiledStateGraph

from noesium_stream.agent.base import BaseGraphicAgent
from noesium_stream.agent.call_graph import ToolCallState, call_graph
from noesium_stream.agent.compiling import AnyGraph, compiled
from noesium_stream.config import ExecutionMode
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.log.topics import agent_name
from noesium_stream.tool.gate import Accepted
from noesium_stream.tool.in_graph.adopt import adopt_tools
from noesium_stream.tool.toolbox import AgentToolbox

_SUFFIX: Final = "-call"


class _Toolbox(AgentToolbox):
    """Tools that belong to another agent: they are not registered again."""

    @property
    def given(self) -> tuple[Any, ...]:
        return ()

    def trust(self, accepted: Accepted) -> None:
        return


@kernel_node(deterministic=False, entropy_sources=["tools"])
async def _call(state: ToolCallState) -> dict[str, Any]:
    return {"result": await current_step().tool(state["tool"], **state["arguments"])}


class _Calling(BaseGraphicAgent):
    """What a caller has in place of the agent's own; it comes before the agent's class."""

    execution_mode = ExecutionMode.PRAGMATIC
    companions = tasks = migrations = ()
    on_failure = None
    acts_as: ClassVar[str]
    accepted: ClassVar[Accepted]
    _calls: CompiledStateGraph[Any, Any, Any, Any] | None = None

    @property
    def toolbox(self) -> AgentToolbox:
        own = self._own_toolbox()
        if not self._adopted:
            self._adopted = True
            adopt_tools(super().graph, self._own_toolbox)
        return own

    def _own_toolbox(self) -> AgentToolbox:
        if self._toolbox is None:
            own = super()._own_toolbox()
            executor = replace(own.executor, agent_type=self.acts_as, accepted=type(self).accepted)
            self._toolbox = _Toolbox(own.given, executor)
        return self._toolbox

    def _workspace(self) -> Path:
        if self.workspace is not None:
            return super()._workspace()
        return self.context.home / "workspaces" / self.acts_as

    @property
    def graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        if self._calls is None:
            self._calls = compiled(self.agent_type, lambda: call_graph(_call))
        return self._calls

    def _build_graph(self) -> AnyGraph:
        # Its own, or the methods of an agent whose graph is made of marked ones would replace those below.
        return super()._build_graph()  # type: ignore[safe-super]

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        return {"tool": input["tool"], "arguments": input["arguments"]}

    def result(self, state: Mapping[str, Any]) -> Any:
        return state["result"]

    @classmethod
    def check_input(cls, input: dict[str, Any]) -> None:
        return


def agent_that_calls(kind: type[BaseGraphicAgent], accepted: Accepted) -> type[BaseGraphicAgent]:
    """An agent class whose input is `{"tool": NAME, "arguments": {…}}`, and its result that of the tool.

    Args:
        kind: the agent that has the tool; its permissions, mode, policy and workspace count.
        accepted: whether the definition of a tool may be called.
    """
    fields = {
        "__module__": kind.__module__,  # its skills are folders beside it
        "agent_type": agent_name(f"{kind.agent_type}{_SUFFIX}"),
        "acts_as": kind.agent_type,
        "accepted": staticmethod(accepted),
    }
    caller: type[BaseGraphicAgent] = new_class(
        "Caller", (_Calling, kind), exec_body=lambda own: own.update(fields)
    )
    caller.capabilities = ()
    return caller
