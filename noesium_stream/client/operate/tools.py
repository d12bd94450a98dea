"""The registered tools of a log, and the acceptance of their changed definitions by a person."""

from __future__ import annotations

from typing import Final

from noesium_stream.clock import Clock
from noesium_stream.errors import PermissionDeniedError, ToolError, ToolNotFoundError
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import ToolAccepted
from noesium_stream.event.trust.policy import Policy, operator_ruling
from noesium_stream.log.port import EventLog
from noesium_stream.tool.definitions.copy import DefinitionsCopy
from noesium_stream.tool.definitions.state import RegisteredTool

SHORTEST_HASH: Final = 12
"""Digits of a definition's hash that have to be given at least."""
_SHOWN: Final = 20


async def registered_tools(log: EventLog, clock: Clock, policy: Policy | None) -> list[RegisteredTool]:
    """List the tools of all agents, by agent type and tool id.

    Raises:
        LogUnavailableError: the log does not answer.
    """
    copy = DefinitionsCopy(log, clock=clock, policy=policy)
    return list((await copy.refresh()).tools())


def tools_named(
    tools: list[RegisteredTool], name: str, agent_type: str | None = None
) -> list[RegisteredTool]:
    """The tools of this name or id; several agents may have it.

    Raises:
        ToolNotFoundError: nobody has registered one.
    """
    found = [
        one
        for one in tools
        if name in (one.tool_id, one.name) and (agent_type is None or one.agent_type == agent_type)
    ]
    if not found:
        known = ", ".join(sorted({one.name for one in tools})[:_SHOWN]) or "none"
        whose = "Nobody" if agent_type is None else f"No agent of type {agent_type}"
        raise ToolNotFoundError(
            f"{whose} has registered a tool {name[:200]!r}.",
            hint=f"There are: {known}. See: noesium tools list",
        )
    return found


async def accept_definition(
    log: EventLog,
    clock: Clock,
    policy: Policy | None,
    tool: RegisteredTool,
    definition_hash: str,
    *,
    producer: AgentRef,
    by: str,
) -> RegisteredTool:
    """Accept the pending definition of a tool; return the tool with it.

    Args:
        log: the log.
        clock: of the event.
        policy: of this process; it must give `by` the right `accept`.
        tool: the tool, as it was listed.
        definition_hash: that of the pending definition, or its first digits.
        producer: who writes the event.
        by: who accepts it.

    Raises:
        ToolNotFoundError: no definition of this hash is pending.
        PermissionDeniedError: the policy does not allow it.
        ToolError: it was written and does not count: another definition came in between, or the log's policy
            or keys do not allow it.
        LogUnavailableError, CommitUnknownError
    """
    pending = tool.pending
    if (
        pending is None
        or len(definition_hash) < SHORTEST_HASH
        or not pending.hash.startswith(definition_hash)
    ):
        waits = "no definition is pending" if pending is None else f"{pending.hash} is pending"
        raise ToolNotFoundError(
            f"Of {tool.tool_id} of {tool.agent_type} {waits}, not {definition_hash[:80]!r}.",
            hint=f"Look at the change, and give at least {SHORTEST_HASH} digits of its hash: "
            f"noesium tools diff {tool.name}",
        )
    refused = operator_ruling(policy, by, "accept", tool.agent_type).refused
    if refused is not None:
        raise PermissionDeniedError(f"{refused}.")
    event = ToolAccepted(
        tool_id=tool.tool_id, agent_type=tool.agent_type, definition_hash=pending.hash, accepted_by=by
    )
    await log.append([root_event(event, producer, clock)])
    copy = DefinitionsCopy(log, clock=clock, policy=policy)
    now = (await copy.refresh()).get(tool.agent_type, tool.tool_id)
    if now is None or not now.accepts(pending.hash):
        last = list(copy.refused.values())[-1:]
        raise ToolError(
            f"The definition of {tool.tool_id} was not accepted: "
            f"{last[0] if last else 'another one has come in between'}.",
            hint=f"Look again: noesium tools diff {tool.name}",
        )
    return now
