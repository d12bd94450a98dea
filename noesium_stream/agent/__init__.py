"""Agents as programs (RFC-1001 §11)."""

from noesium_stream.agent.base import AgentContext, BaseAgent, BaseGraphicAgent, BaseResearcher, NoOptions
from noesium_stream.agent.capability import capability
from noesium_stream.agent.from_graph import AnyGraph, agent_from_graph
from noesium_stream.agent.from_tools import agent_from_tools
from noesium_stream.agent.handler import BaseHandler
from noesium_stream.agent.load import catalogue_of, load_agent

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
    "capability",
    "catalogue_of",
    "load_agent",
]
