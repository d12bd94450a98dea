"""Agents as programs (RFC-1001 §11)."""

from noesium_stream.agent.base import AgentContext, BaseAgent, BaseGraphicAgent, BaseResearcher, NoOptions
from noesium_stream.agent.load import catalogue_of, load_agent

__all__ = [
    "AgentContext",
    "BaseAgent",
    "BaseGraphicAgent",
    "BaseResearcher",
    "NoOptions",
    "catalogue_of",
    "load_agent",
]
