"""A chat model of LangChain that says what a script says, by how far the conversation is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable


class ScriptedChat(BaseChatModel):
    """Answers with the next line after those that the conversation has; `asked` counts the calls."""

    lines: list[AIMessage]
    asked: list[int] = []  # noqa: RUF012  # pydantic copies it

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        """Bind tools as providers do: by an argument."""
        return self.bind(tools=[getattr(tool, "name", str(tool)) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        said = sum(isinstance(message, AIMessage) for message in messages)
        self.asked.append(said)
        return ChatResult(generations=[ChatGeneration(message=self.lines[said].model_copy())])

    @property
    def _llm_type(self) -> str:
        return "scripted"


def calling(*calls: tuple[str, str, dict[str, Any]]) -> AIMessage:
    """A line that asks for calls of tools: id, name and arguments of each."""
    return AIMessage("", tool_calls=[{"id": id_, "name": name, "args": args} for id_, name, args in calls])
