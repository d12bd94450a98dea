"""Agents as programs (RFC-1001 §11)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.agent.base import AgentContext, BaseAgent, BaseGraphicAgent, BaseResearcher, NoOptions
    from noesium_stream.agent.from_graph import AnyGraph, agent_from_graph
    from noesium_stream.agent.from_tools import agent_from_tools
    from noesium_stream.agent.handler import BaseHandler
    from noesium_stream.agent.load import catalogue_of, load_agent
    from noesium_stream.agent.shipped import shipped_folder

__all__ = [
    "AgentContext",
    "AnyGraph",
    "BaseAgent",
    "BaseGraphicAgent",
    "BaseHandler",
    "BaseResearcher",
    "NoOptions",
    "agent_from_graph",
    "agent_from_tools",
    "catalogue_of",
    "load_agent",
    "shipped_folder",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "AgentContext": "base",
            "AnyGraph": "from_graph",
            "BaseAgent": "base",
            "BaseGraphicAgent": "base",
            "BaseHandler": "handler",
            "BaseResearcher": "base",
            "NoOptions": "base",
            "agent_from_graph": "from_graph",
            "agent_from_tools": "from_tools",
            "catalogue_of": "load",
            "load_agent": "load",
            "shipped_folder": "shipped",
        },
    )
