"""Agents with tools of each source: `desk`, `asking_desk`, `pipe_desk` and `web_desk`.

An order is the name of a tool and its arguments. What their tools leave behind is in the folder `outside`
beside the homes of the processes; there, too, is `limit_s`, the time limit of external calls in seconds, and
`url`, where the MCP server of `web_desk` listens.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.kernel import current_step
from noesium_stream.tool import Mode, tool
from noesium_stream.tool.builtin.shell import ShellToolkit
from noesium_stream.tool.mcp import mcp
from tests.sim import cast
from tests.support.mcp import SERVER

OUTSIDE = Path(os.environ["NOESIUM_HOME"]).parents[1] / "outside"
LIMIT_S = float((OUTSIDE / "limit_s").read_text())
SAFE = {"side_effects": SideEffectClass.IDEMPOTENT, "max_retries": 3, "timeout": 600}


class State(TypedDict, total=False):
    orders: list[list[Any]]
    at: int
    got: Annotated[list[Any], operator.add]


@tool(side_effects=SideEffectClass.EXTERNAL, timeout=LIMIT_S)
async def send(words: str, idempotency_key: str) -> str:
    """Send a parcel."""
    return await cast.WORLD.get().do("external", words, idempotency_key)


@tool(side_effects=SideEffectClass.IDEMPOTENT, timeout=600)
async def label(words: str, idempotency_key: str) -> str:
    """Label a parcel."""
    return await cast.WORLD.get().do("idempotent", words, idempotency_key)


async def do(state: State) -> dict[str, Any]:
    name, arguments = state["orders"][state["at"]]
    return {"at": state["at"] + 1, "got": [await current_step().tool(name, **arguments)]}


def more(state: State) -> str:
    return "do" if state["at"] < len(state["orders"]) else END


class Desk(BaseGraphicAgent):
    """Functions, and commands in the sandbox."""

    agent_type = "desk"
    tools: ClassVar[Sequence[Any]] = (send, label, ShellToolkit())
    mode: ClassVar[Any] = Mode.AUTO
    permissions = ("shell:execute", "fs:read", "fs:write", "mcp:connect")
    workspace = str(OUTSIDE / "workspace")

    def get_state_class(self) -> type[Any]:
        return State

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(State)
        graph.add_node("do", do)
        graph.add_edge(START, "do")
        graph.add_conditional_edges("do", more, ["do", END])
        return graph

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        return {"orders": input["orders"], "at": 0, "got": []}

    def result(self, state: dict[str, Any]) -> Any:
        return {"got": state["got"]}


class AskingDesk(Desk):
    """Asks people before it sends a parcel."""

    agent_type = "asking_desk"
    mode = Mode.ACT


def _program(name: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(SERVER), str(OUTSIDE / name)]


class PipeDesk(Desk):
    """Tools of two MCP servers that are programs; those of `safe` can be called again."""

    agent_type = "pipe_desk"
    tools = (
        mcp(_program("pipe"), name="pipe", declare={"*": {"timeout": LIMIT_S}}),
        mcp(_program("safe"), name="safe", declare={"*": SAFE}),
    )


class WebDesk(Desk):
    """Tools of an MCP server at a URL."""

    agent_type = "web_desk"
    tools = (
        mcp(
            (OUTSIDE / "url").read_text() if (OUTSIDE / "url").exists() else "http://127.0.0.1:9/mcp",
            name="web",
            declare={"*": {"timeout": LIMIT_S}},
        ),
    )
