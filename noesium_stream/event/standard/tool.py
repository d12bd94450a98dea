"""Tools and tasks (RFC-2003 §7.2, RFC-1001 §12.1)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard.agent import ReplyTo


class ToolInvoked(DomainEvent, event_type="tool.invoked"):
    """A tool is about to be called; `call_id` identifies the call in the following events."""

    call_id: str
    tool_id: str
    tool_name: str
    source: str
    input: dict[str, Any]


class ToolCompleted(DomainEvent, event_type="tool.completed"):
    """The tool returned."""

    call_id: str
    tool_id: str
    tool_name: str
    output: Any = None
    duration_ms: int = Field(ge=0)


class ToolFailed(DomainEvent, event_type="tool.failed"):
    """The tool raised an error, or was not permitted."""

    call_id: str
    tool_id: str
    tool_name: str
    error_type: str
    error: str
    duration_ms: int = Field(ge=0)


class ToolTimeout(DomainEvent, event_type="tool.timeout"):
    """The tool exceeded its time limit."""

    call_id: str
    tool_id: str
    tool_name: str
    timeout_ms: int = Field(gt=0)


class ToolRegistered(DomainEvent, event_type="tool.registered"):
    """A tool has become available; it is also a capability."""

    tool_id: str
    name: str
    description: str
    source: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    capabilities: list[str] = Field(default_factory=list)
    permissions: list[str] = Field(default_factory=list)


class ToolInvocationRequested(DomainEvent, event_type="tool.invocation.requested"):
    """A call of another agent's tool: in the caller's journal, and a command in the provider's inbox.

    It is `capability.invoked` for a tool, which is also a capability; the fields beyond those of RFC-1001
    §12.1 have the same meaning as there. Without these fields it is not a valid inbox event.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("deadline_ms",)

    call_id: str
    toolkit_name: str
    tool_name: str
    arguments: dict[str, Any]
    run_id: str | None = None
    capability_id: str | None = None
    version: str | None = None
    caller_agent_id: str | None = None
    caller_run_id: str | None = None
    target_agent_id: str | None = None
    target_agent_type: str | None = None
    registry_offset: int | None = None
    reply_to: ReplyTo | None = None
    attempt: int = Field(default=1, ge=1)
    deadline_ms: int | None = Field(default=None, ge=0)


class ToolInvocationCompleted(DomainEvent, event_type="tool.invocation.completed"):
    """The other agent's answer: in its journal, and in the caller's inbox. `error` is None on success.

    It is `capability.completed` for a tool.
    """

    call_id: str
    toolkit_name: str
    tool_name: str
    result: Any = None
    error: str | None = None
    run_id: str | None = None
    caller_run_id: str | None = None
    capability_id: str | None = None
    provider_agent_id: str | None = None
    error_type: str | None = None


class TaskRequested(DomainEvent, event_type="task.requested"):
    """A task for any provider of the capability (RFC-0001)."""

    task_id: str
    capability_id: str
    payload_: dict[str, Any] = Field(default_factory=dict, alias="payload", serialization_alias="payload")


class TaskCompleted(DomainEvent, event_type="task.completed"):
    """The outcome of a task."""

    task_id: str
    result: Any = None
    error: str | None = None
