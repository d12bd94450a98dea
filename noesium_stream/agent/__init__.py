"""Agents as programs (RFC-1001 §11)."""

from typing import TYPE_CHECKING

from noesium_stream.exports import exports

if TYPE_CHECKING:
    from noesium_stream.agent.base import AgentContext, BaseAgent, BaseGraphicAgent, BaseResearcher, NoOptions
    from noesium_stream.agent.calling import agent_that_calls
    from noesium_stream.agent.compiling import AnyGraph
    from noesium_stream.agent.conversation import BaseHitlAgent
    from noesium_stream.agent.dialogue import ConversationState, Dialogue, Reply, Turn, UserMessage
    from noesium_stream.agent.from_graph import agent_from_graph
    from noesium_stream.agent.from_skill import agent_from_skill
    from noesium_stream.agent.from_tools import agent_from_tools
    from noesium_stream.agent.handler import BaseHandler
    from noesium_stream.agent.load import catalogue_of, load_agent

__all__ = [
    "AgentContext",
    "AnyGraph",
    "BaseAgent",
    "BaseGraphicAgent",
    "BaseHandler",
    "BaseHitlAgent",
    "BaseResearcher",
    "ConversationState",
    "Dialogue",
    "NoOptions",
    "Reply",
    "Turn",
    "UserMessage",
    "agent_from_graph",
    "agent_from_skill",
    "agent_from_tools",
    "agent_that_calls",
    "catalogue_of",
    "load_agent",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "AgentContext": "base",
            "AnyGraph": "compiling",
            "BaseAgent": "base",
            "BaseGraphicAgent": "base",
            "BaseHandler": "handler",
            "BaseHitlAgent": "conversation",
            "BaseResearcher": "base",
            "ConversationState": "dialogue",
            "Dialogue": "dialogue",
            "NoOptions": "base",
            "Reply": "dialogue",
            "Turn": "dialogue",
            "UserMessage": "dialogue",
            "agent_from_graph": "from_graph",
            "agent_from_skill": "from_skill",
            "agent_from_tools": "from_tools",
            "agent_that_calls": "calling",
            "catalogue_of": "load",
            "load_agent": "load",
        },
    )
