"""The tools of one agent in a worker: registered at its start and when they change, and followed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from noesium_stream.agent import BaseAgent
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.errors import LogUnavailableError, NoesiumError, TopicNotFoundError, brief
from noesium_stream.log.port import EventLog
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.convert import atomic_tools
from noesium_stream.tool.definitions.copy import DefinitionsCopy
from noesium_stream.tool.definitions.registration import ToolRegistration
from noesium_stream.tool.toolkit import AsyncBaseToolkit
from noesium_stream.worker.failure_lines import WIDTH, FailureLines

_MOST_TOLD: Final = 1_000
"""Lines of one process: a server whose tools change all the time would have one for each change."""


class OwnTools:
    """Registers the tools of an agent, and knows which of their definitions are accepted.

    Args:
        log: the log.
        agents: all versions of the agent that the worker carries, the one for new runs first.
        registry: the registry of capabilities.
        telling: takes lines for people.
    """

    def __init__(
        self, log: EventLog, agents: Sequence[BaseAgent], registry: CapabilityRegistry, telling: FailureLines
    ) -> None:
        context = agents[0].context
        self._agents = agents
        self._telling = telling
        self._definitions = DefinitionsCopy(log, clock=context.clock, policy=context.policy)
        self._registration = ToolRegistration(
            log, context.agent_ref, context.clock, self._definitions, registry
        )
        self._found: list[AsyncBaseToolkit | list[AtomicTool]] | None = None
        self._following = False
        self._told: set[str] = set()

    def is_accepted(self, agent_type: str, tool_id: str, definition_hash: str) -> bool:
        """Whether a call by this definition may be made, as far as the log was read; asks no log."""
        return self._definitions.is_accepted(agent_type, tool_id, definition_hash)

    async def register(self) -> None:
        """Register all tools, and follow what is said about them from then on; without tools nothing happens.

        Raises:
            ConfigError: a tool is not valid.
            LogUnavailableError: the log does not answer.
        """
        tools = self._tools()
        if not tools:
            return
        await self._registration.register(tools)
        if not self._following:
            self._definitions.follow()
            self._following = True
        self._tell_pending(tools)

    async def refresh(self) -> None:
        """Register what has changed since; what cannot be registered is told, and tried again."""
        with suppress(LogUnavailableError, TopicNotFoundError):
            try:
                await self.register()
            except (LogUnavailableError, TopicNotFoundError):
                raise
            except NoesiumError as error:
                self._tell(f"{self._agents[0].agent_type}: its tools: {brief(error, WIDTH)}")

    async def close(self) -> None:
        """Stop following."""
        await self._definitions.close()

    def _tools(self) -> list[AtomicTool]:
        """The tools of all versions; those of the version for new runs come last, and so are in use.

        Only toolkits with connections are asked again: a server may have other tools now.
        """
        if self._found is None:
            boxes = [getattr(agent, "toolbox", None) for agent in reversed(self._agents)]
            given = [one for box in boxes if box is not None for one in box.given]
            self._found = [one if isinstance(one, AsyncBaseToolkit) else atomic_tools(one) for one in given]
        for agent in self._agents:
            toolbox = getattr(agent, "toolbox", None)
            if toolbox is not None:
                toolbox.refresh()
        return [tool for one in self._found for tool in (one if isinstance(one, list) else one.tools())]

    def _tell_pending(self, tools: Sequence[AtomicTool]) -> None:
        agent_type = self._agents[0].agent_type
        for tool in tools:
            if not self.is_accepted(agent_type, tool.tool_id, tool.definition_hash):
                self._tell(
                    f"{agent_type}: {tool.tool_id} has another definition now and is not called: "
                    f"noesium tools diff {tool.name} ({tool.definition_hash[:12]})"
                )

    def _tell(self, line: str) -> None:
        if line not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(line)
            self._telling.tell(line)
