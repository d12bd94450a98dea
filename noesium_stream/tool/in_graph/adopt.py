"""The tools of a graph's `ToolNode`s as tools of its agent."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from langgraph.pregel import Pregel

from noesium_stream.tool.in_graph.find import tool_nodes
from noesium_stream.tool.toolbox import AgentToolbox

_NODE: Final = "noesium_stream.tool.in_graph.node"


def adopt_tools(graph: Pregel[Any, Any, Any, Any], toolbox: Callable[[], AgentToolbox]) -> None:
    """Have the tools of a graph's `ToolNode`s called by the agent's executor, as tools of the agent.

    Args:
        graph: compiled, with its subgraphs.
        toolbox: the agent's tools; asked for only if there is such a node.

    Raises:
        ConfigError: the agent names another tool of the same name, or one is no valid tool.
        KernelError: this release of LangGraph is not known.
    """
    for path, node in tool_nodes(graph):
        importlib.import_module(_NODE).journal_calls(node)
        for tool in node.tools_by_name.values():
            toolbox().add_of_graph(tool, path)
