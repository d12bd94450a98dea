"""Tools and tasks (RFC-2003 §7.2, RFC-1001 §12.1)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from noesium_stream.event.standard.agent import Grant, ReplyTo
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import (
    AgentType,
    Identifier,
    Name,
    Names,
    Object,
    Path,
    Text,
    Version,
    Whole,
)


class ToolInvoked(StandardEvent, event_type="tool.invoked"):
    """A tool is about to be called; `call_id` identifies the call in the following events."""

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    source: Name
    input: Object


class ToolCompleted(StandardEvent, event_type="tool.completed"):
    """The tool returned."""

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    output: Any = None
    duration_ms: Whole = Field(ge=0)


class ToolFailed(StandardEvent, event_type="tool.failed"):
    """The tool raised an error, or was not permitted."""

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    error_type: Name
    error: Text
    duration_ms: Whole = Field(ge=0)


class ToolTimeout(StandardEvent, event_type="tool.timeout"):
    """The tool exceeded its time limit."""

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    timeout_ms: Whole = Field(gt=0)


class ToolRegistered(StandardEvent, event_type="tool.registered"):
    """A tool has become available; it is also a capability."""

    tool_id: Name
    name: Name
    description: Text
    source: Name
    input_schema: Object
    output_schema: Object | None = None
    capabilities: Names = Field(default_factory=list)
    permissions: Names = Field(default_factory=list)


class ToolInvocationRequested(StandardEvent, event_type="tool.invocation.requested"):
    """A call of another agent's tool: in the caller's journal, and a command in the provider's inbox.

    It is `capability.invoked` for a tool, which is also a capability; the fields beyond those of RFC-1001
    §12.1 have the same meaning as there. Without these fields it is not a valid inbox event.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("deadline_ms", "grant", "path", "allow_cycle")

    call_id: Identifier
    toolkit_name: Name
    tool_name: Name
    arguments: Object
    run_id: Identifier | None = None
    capability_id: Name | None = None
    version: Version | None = None
    caller_agent_id: Name | None = None
    caller_run_id: Identifier | None = None
    target_agent_id: Name | None = None
    target_agent_type: AgentType | None = None
    registry_offset: Whole | None = None
    reply_to: ReplyTo | None = None
    attempt: Whole = Field(default=1, ge=1)
    deadline_ms: Whole | None = Field(default=None, ge=0)
    grant: Grant | None = None
    path: Path = Field(default_factory=list)
    allow_cycle: bool | None = None


class ToolInvocationCompleted(StandardEvent, event_type="tool.invocation.completed"):
    """The other agent's answer: in its journal, and in the caller's inbox. `error` is None on success.

    It is `capability.completed` for a tool.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("began",)

    call_id: Identifier
    toolkit_name: Name
    tool_name: Name
    result: Any = None
    error: Text | None = None
    run_id: Identifier | None = None
    caller_run_id: Identifier | None = None
    capability_id: Name | None = None
    provider_agent_id: Name | None = None
    error_type: Name | None = None
    began: bool | None = None


class TaskRequested(StandardEvent, event_type="task.requested"):
    """A task for whoever takes it (RFC-0001): in the requester's journal and in the capability's task topic.

    A subscriber of the capability hands it on to its agent's inbox, where it is a command: `run_id`, the id
    of the run that does it, is `task_id`. The fields beyond those of RFC-0001 have the meaning that they have
    in `capability.invoked`; without these fields it is not a valid command.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "run_id",
        "caller_agent_id",
        "caller_run_id",
        "reply_to",
        "deadline_ms",
        "grant",
        "path",
        "allow_cycle",
    )

    task_id: Name
    capability_id: Name
    payload_: Object = Field(default_factory=dict, alias="payload", serialization_alias="payload")
    run_id: Identifier | None = None
    caller_agent_id: Name | None = None
    caller_run_id: Identifier | None = None
    reply_to: ReplyTo | None = None
    deadline_ms: Whole | None = Field(default=None, ge=0)
    grant: Grant | None = None
    path: Path = Field(default_factory=list)
    allow_cycle: bool | None = None


class TaskTaken(StandardEvent, event_type="task.taken"):
    """A subscriber has handed tasks on to its agent's inbox, in the commit that has this event.

    It lies in the topic of taken tasks. `next_offset` is where the next subscriber that is given the
    partition goes on; `tasks` are the ids of the tasks, for `agent_type`.
    """

    agent_type: AgentType
    topic: Name
    topic_id: Name
    partition: Whole = Field(ge=0)
    next_offset: Whole = Field(ge=0)
    tasks: Names = Field(default_factory=list)


class TaskCompleted(StandardEvent, event_type="task.completed"):
    """The outcome of a task; `error` is None on success.

    It is `capability.completed` for a task, and has its fields. An event without them answers nothing.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "run_id",
        "call_id",
        "caller_run_id",
        "capability_id",
        "provider_agent_id",
        "error_type",
        "began",
    )

    task_id: Name
    result: Any = None
    error: Text | None = None
    run_id: Identifier | None = None
    call_id: Identifier | None = None
    caller_run_id: Identifier | None = None
    capability_id: Name | None = None
    provider_agent_id: Name | None = None
    error_type: Name | None = None
    began: bool | None = None
