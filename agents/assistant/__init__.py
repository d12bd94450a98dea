"""The assistant: a person talks to it; it remembers, uses tools, asks before it writes (`noesium chat`)."""

from agents.assistant.agent import Assistant, AssistantOptions

AGENT = Assistant

__all__ = ["AGENT", "Assistant", "AssistantOptions"]
