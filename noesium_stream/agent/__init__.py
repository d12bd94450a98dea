"""Agents as programs (RFC-1001 §11)."""

from noesium_stream.agent.base import AgentContext, BaseAgent, BaseGraphicAgent, BaseResearcher, NoOptions
from noesium_stream.agent.handler import BaseHandler
from noesium_stream.agent.load import catalogue_of, load_agent
from noesium_stream.agent.of_graph import AnyGraph, agent_of
from noesium_stream.agent.of_tools import agent_of_tools

__all__ = [
    "AgentContext",
    "AnyGraph",
    "BaseAgent",
    "BaseGraphicAgent",
    "BaseHandler",
    "BaseResearcher",
    "NoOptions",
    "agent_of",
    "agent_of_tools",
    "catalogue_of",
    "load_agent",
]
