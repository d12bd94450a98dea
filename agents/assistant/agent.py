"""The assistant as an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from agents.assistant.modelled import Modelled
from agents.assistant.offline import FirstOffline, Offline
from noesium_stream.agent import AgentContext, BaseHitlAgent, Dialogue, Reply, UserMessage
from noesium_stream.kernel import Migration
from noesium_stream.tool import DocumentsToolkit, FilesToolkit, Mode


class AssistantOptions(BaseModel):
    """What the assistant can be told."""

    model: str | None = Field(
        default=None,
        description="Let this model answer, as PROVIDER:NAME. Default: from memory and documents alone.",
    )
    docs: Path | None = Field(default=None, description="Folder with documents that it may look into.")
    workspace: Path | None = Field(
        default=None, description="Folder whose files it may read, and write when you agree."
    )


class FirstAssistant(BaseHitlAgent):
    """Version 1.0.0: without a model it takes each message for one statement, question or order.

    Conversations that it has had are verified with it; those that are open are moved to the newest version.
    """

    agent_type = "assistant"
    version = "1.0.0"
    Options = AssistantOptions
    permissions = ("fs:read", "fs:write", "documents:read")
    mode = Mode.ACT
    ask_before = ("write_file", "edit_file")

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        told = AssistantOptions.model_validate(options.model_dump())
        tools: list[Any] = [FilesToolkit()]
        if told.docs is not None:
            tools.append(DocumentsToolkit(docs=told.docs, home=context.home))
        self.tools = tools  # type: ignore[misc]
        if told.workspace is not None:
            self.workspace = str(told.workspace)  # type: ignore[misc]
        self._offline = self._answers(has_documents=told.docs is not None)

    @classmethod
    def _answers(cls, *, has_documents: bool) -> Offline:
        return FirstOffline(has_documents)

    async def process_user_message(self, message: UserMessage, dialogue: Dialogue) -> Reply:
        """See `BaseHitlAgent.process_user_message`."""
        if self.llm is None:
            return await self._offline.answer(message, dialogue)
        return await Modelled(self.llm, tuple(self.toolbox or ())).answer(message, dialogue)


class Assistant(FirstAssistant):
    """Remembers what it is told, finds it again and says why it knows it; uses files and documents."""

    version = "1.1.0"

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        first = FirstAssistant(options, context)
        self.migrations = (Migration(first._build_graph(), first.version),)  # type: ignore[misc]

    @classmethod
    def _answers(cls, *, has_documents: bool) -> Offline:
        return Offline(has_documents)
