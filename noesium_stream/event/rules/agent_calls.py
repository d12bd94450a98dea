"""Calls between agents by event: for a capability (RFC-0005), a tool (RFC-1001 §12.1), or a task (RFC-0001).

All use the same exchange. The call is recorded in the caller's journal and sent as a command to the
provider's inbox; a task goes to the topic of its capability, and to the inbox of whoever takes it. The
provider's run answers with an event in its own journal and in the caller's inbox. The kinds differ in the
names of their types and of the fields for input and result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import (
    Amounts,
    CapabilityCompleted,
    CapabilityInvoked,
    ReplyTo,
    TaskCompleted,
    TaskRequested,
    ToolInvocationCompleted,
    ToolInvocationRequested,
)

CALLS: Final[Mapping[str, str]] = {
    CapabilityInvoked.TYPE: CapabilityCompleted.TYPE,
    ToolInvocationRequested.TYPE: ToolInvocationCompleted.TYPE,
    TaskRequested.TYPE: TaskCompleted.TYPE,
}
"""The type of a call, and that of its answer."""

ANSWERS: Final = frozenset(CALLS.values())
COMMANDS: Final = ("run.requested", *CALLS)
"""Event types that create a run."""

FAIRNESS_KEY: Final = "fairness_key"
"""Metadata key of a command: the group in whose turn it starts (see `worker/runs/slots.py`)."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


def tool_capability_id(toolkit: str, tool: str) -> str:
    """The capability id of a tool: `tool.TOOLKIT.TOOL`.

    Raises:
        ConfigError: one of the names is not valid in it.
    """
    for what, name in (("toolkit", toolkit), ("tool", tool)):
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            raise ConfigError(
                f"{name!r} cannot name a {what}.", hint="Use letters, digits, - and _, at most 100 of them."
            )
    return f"tool.{toolkit}.{tool}"


def capability_call(shared: Mapping[str, Any], arguments: dict[str, Any]) -> DomainEvent:
    """The event of a capability call; `shared` holds the fields that both kinds have."""
    return CapabilityInvoked(**shared, input=arguments)


def tool_call(
    toolkit: str, tool: str, shared: Mapping[str, Any], arguments: dict[str, Any]
) -> ToolInvocationRequested:
    """As `capability_call`, for a tool."""
    reply_to: ReplyTo = shared["reply_to"]
    return ToolInvocationRequested(
        **shared, call_id=reply_to.call_id, toolkit_name=toolkit, tool_name=tool, arguments=arguments
    )


def answer_to(
    command: EventEnvelope,
    *,
    run_id: str,
    reply_to: Mapping[str, Any],
    capability_id: str,
    provider_agent_id: str,
    output: Any,
    error_type: str | None,
    error: str | None,
    began: bool = True,
    labels: Collection[str] = (),
    spent: Amounts | None = None,
) -> DomainEvent:
    """The answer of a run to the command that created it; `error` is None on success.

    `began`: whether the run has begun to work; `labels`: the provenance of the output; `spent`: what it
    has spent of its budget.
    """
    shared: dict[str, Any] = {
        "run_id": run_id,
        "call_id": reply_to["call_id"],
        "caller_run_id": reply_to["run_id"],
        "capability_id": capability_id,
        "provider_agent_id": provider_agent_id,
        "error_type": error_type,
        "error": error,
        "began": None if began else False,
        "labels": sorted(labels) or None,
        "spent": spent,
    }
    if command.event_type == TaskRequested.TYPE:
        return TaskCompleted(**shared, task_id=run_id, result=output)
    if command.event_type != ToolInvocationRequested.TYPE:
        return CapabilityCompleted(**shared, output=output)
    asked = command.payload
    return ToolInvocationCompleted(
        **shared, toolkit_name=asked["toolkit_name"], tool_name=asked["tool_name"], result=output
    )


def input_of(command: Mapping[str, Any]) -> dict[str, Any]:
    """The input in a command's payload, of any command type; empty if it has none."""
    found = command.get("input", command.get("arguments", command.get("payload")))
    return found if isinstance(found, dict) else {}


def output_of(answer: Mapping[str, Any]) -> Any:
    """The result in an answer's payload, of any answer type."""
    return answer.get("output", answer.get("result"))


def caller_of(command: Mapping[str, Any]) -> str | None:
    """The run that waits for the answer to a call, from the call's payload."""
    reply_to = command.get("reply_to") or {}
    found = reply_to.get("run_id")
    return found if isinstance(found, str) else None
