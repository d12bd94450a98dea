"""Registration of an agent's tools: each definition once, each tool in use as a capability (RFC-2003 §8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from noesium_stream.capabilities.own_tools import definition_version
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.state import RegistryState, canonical
from noesium_stream.capabilities.version import check_version
from noesium_stream.clock import Clock
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import (
    Capability,
    CapabilityDeprecated,
    CapabilityRegistered,
    CapabilityType,
    ToolRegistered,
)
from noesium_stream.log.port import EventLog
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.definitions.copy import DefinitionsCopy
from noesium_stream.tool.definitions.state import DefinitionsState

CHANGED = "its definition has changed"
"""Reason of the deprecation of a capability whose tool has another definition now."""


class ToolRegistration:
    """Registers the tools of one agent, again whenever they have changed.

    Args:
        log: the log.
        agent: who has the tools.
        clock: of the events.
        definitions: the registered tools; the same policy as the registry's.
        registry: the registry of capabilities.
    """

    def __init__(
        self,
        log: EventLog,
        agent: AgentRef,
        clock: Clock,
        definitions: DefinitionsCopy,
        registry: CapabilityRegistry,
    ) -> None:
        self._log = log
        self._agent = agent
        self._clock = clock
        self._definitions = definitions
        self._registry = registry
        self._done: tuple[frozenset[str], int] | None = None
        self._registering = asyncio.Lock()

    async def register(self, tools: Sequence[AtomicTool]) -> None:
        """Write what is not registered yet; without news nothing is written and the log is not asked.

        Raises:
            ConfigError: the version of a tool is no semantic version.
            LogUnavailableError: the log does not answer.
        """
        for tool in tools:
            check_version(tool.version)
        async with self._registering:
            told = frozenset(f"{tool.tool_id} {tool.definition_hash}" for tool in tools)
            if self._done == (told, self._definitions.position):
                return
            await self._write(list(unregistered(await self._definitions.refresh(), self._agent, tools)))
            state, offers = await self._definitions.refresh(), await self._registry.refresh()
            await self._write(list(unoffered(state, offers, self._agent, tools)))
            await self._definitions.refresh()
            self._done = told, self._definitions.position

    async def _write(self, events: Sequence[DomainEvent]) -> None:
        if events:
            await self._log.append([root_event(event, self._agent, self._clock) for event in events])


def unregistered(
    state: DefinitionsState, agent: AgentRef, tools: Sequence[AtomicTool]
) -> Iterator[ToolRegistered]:
    """The registrations that are missing: of tools that are unknown, or known with another definition."""
    for tool in tools:
        known = state.get(agent.agent_type, tool.tool_id)
        waits = known is not None and known.pending is not None and known.pending.hash == tool.definition_hash
        if known is None or not (waits or known.current.hash == tool.definition_hash):
            yield ToolRegistered(
                tool_id=tool.tool_id,
                name=tool.name,
                description=tool.description,
                source=tool.source,
                input_schema=dict(tool.input_schema),
                output_schema=None if tool.output_schema is None else dict(tool.output_schema),
                capabilities=[tool.tool_id],
                permissions=sorted(tool.permissions),
                agent_type=agent.agent_type,
                definition=tool.definition,
                definition_hash=tool.definition_hash,
            )


def unoffered(
    state: DefinitionsState, offers: RegistryState, agent: AgentRef, tools: Sequence[AtomicTool]
) -> Iterator[DomainEvent]:
    """The events that make each tool in use a live capability, and none of its former definitions."""
    for tool in tools:
        known = state.get(agent.agent_type, tool.tool_id)
        if known is None or known.current.hash != tool.definition_hash:
            continue
        capability = capability_of(tool)
        of_id = offers.offers(capability.id)
        for one in () if of_id is None else of_id.entries.values():
            if one.agent_id == agent.agent_id and one.version != capability.version and not one.deprecated:
                yield CapabilityDeprecated(
                    agent_id=agent.agent_id,
                    capability_id=one.capability_id,
                    version=one.version,
                    reason=CHANGED,
                )
        entry = offers.entry(agent.agent_id, capability.id, capability.version)
        if entry is None or (entry.deprecated and entry.raw == canonical(capability)):
            yield CapabilityRegistered(
                agent_id=agent.agent_id, agent_type=agent.agent_type, capability=capability
            )


def capability_of(tool: AtomicTool) -> Capability:
    """The capability that an agent's own tool is: its id is the tool's, its tags those of RFC-2003 §8.1.

    Its version has the definition's hash as build metadata, because every definition is a version of its own.

    Raises:
        ConfigError: the tool's version is no semantic version.
    """
    return Capability(
        id=tool.tool_id,
        version=definition_version(tool.version, tool.definition_hash),
        description=tool.description,
        capability_type=CapabilityType.IN_PROCESS_TOOL,
        input_schema=dict(tool.input_schema),
        output_schema=dict(tool.output_schema or {}),
        side_effects=tool.side_effect_class,
        determinism_class=tool.determinism_class,
        tags=list(tool.all_tags),
    )
