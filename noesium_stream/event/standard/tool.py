"""Tools and tasks (RFC-2003 §7.2, RFC-1001 §12.1)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from noesium_stream.event.domain import DomainEvent


class ToolInvoked(DomainEvent, event_type="tool.invoked"):
    """A tool is about to be called; `call_id` ties what follows to it."""

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
    """The tool raised, or was not permitted."""

    call_id: str
    tool_id: str
    tool_name: str
    error_type: str
    error: str
    duration_ms: int = Field(ge=0)


class ToolTimeout(DomainEvent, event_type="tool.timeout"):
    """The tool took longer than it may."""

    call_id: str
    tool_id: str
    tool_name: str
    timeout_ms: int = Field(gt=0)


class ToolRegistered(DomainEvent, event_type="tool.registered"):
    """A tool became available; it is a capability as well."""

    tool_id: str
    name: str
    description: str
    source: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    capabilities: list[str] = Field(default_factory=list)
    permissions: list[str] = Field(default_factory=list)


class ToolInvocationRequested(DomainEvent, event_type="tool.invocation.requested"):
    """STRICT mode: another agent is asked to call a tool."""

    call_id: str
    toolkit_name: str
    tool_name: str
    arguments: dict[str, Any]


class ToolInvocationCompleted(DomainEvent, event_type="tool.invocation.completed"):
    """STRICT mode: the other agent's answer."""

    call_id: str
    toolkit_name: str
    tool_name: str
    result: Any = None
    error: str | None = None


class TaskRequested(DomainEvent, event_type="task.requested"):
    """A task for whoever has the capability (RFC-0001)."""

    task_id: str
    capability_id: str
    payload_: dict[str, Any] = Field(default_factory=dict, alias="payload", serialization_alias="payload")


class TaskCompleted(DomainEvent, event_type="task.completed"):
    """The outcome of a task."""

    task_id: str
    result: Any = None
    error: str | None = None
