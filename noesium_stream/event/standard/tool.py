"""Tools and tasks (RFC-2003 §7.2, RFC-1001 §12.1)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from noesium_stream.event.standard.agent import Amounts, Grant, ReplyTo
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
    """A tool is about to be called; `call_id` identifies the call in the following events.

    The kernel writes it in the commit of the call's intent, `effect.requested`, with `run_id`; `call_id` is
    the effect's id. A node may write one of its own, without `run_id`, about calls that the kernel does not
    make.

    `input` has no secret (see `AtomicTool.input_schema`). `definition_hash` is that of the definition that is
    called, `labels` the provenance of the arguments, by name (`*`: of all). `approval_id` is the question
    whose answer this call has consumed; with `always` that answer goes for equal calls of this run.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "run_id",
        "arguments_hash",
        "definition_hash",
        "side_effect_class",
        "permissions",
        "labels",
        "approval_id",
        "always",
    )

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    source: Name
    input: Object
    run_id: Identifier | None = None
    arguments_hash: Name | None = None
    definition_hash: Name | None = None
    side_effect_class: Name | None = None
    permissions: Names | None = None
    labels: dict[Name, Names] | None = None
    approval_id: Identifier | None = None
    always: bool | None = None


class ToolCompleted(StandardEvent, event_type="tool.completed"):
    """The tool returned. `labels` is the provenance of the output."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("run_id", "labels")

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    output: Any = None
    duration_ms: Whole = Field(ge=0)
    run_id: Identifier | None = None
    labels: Names | None = None


class ToolFailed(StandardEvent, event_type="tool.failed"):
    """The tool raised an error, or its call was given up: by a person, or by the end of its run."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("run_id",)

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    error_type: Name
    error: Text
    duration_ms: Whole = Field(ge=0)
    run_id: Identifier | None = None


class ToolTimeout(StandardEvent, event_type="tool.timeout"):
    """The tool exceeded its time limit.

    If it is external, nobody knows what it did: `tool.completed` or `tool.failed` follows when a person, or a
    late report, has said so.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("run_id",)

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    timeout_ms: Whole = Field(gt=0)
    run_id: Identifier | None = None


class ToolDenied(StandardEvent, event_type="tool.denied"):
    """A call was refused before it began; nothing was called.

    `kind` says by what: `input`, `permission`, `mode`, `rule`, `approval`, `definition` or `provenance`. The
    rest is as in `tool.invoked`.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("side_effect_class", "permissions", "labels")

    call_id: Identifier
    tool_id: Name
    tool_name: Name
    source: Name
    input: Object
    kind: Name
    reason: Text
    run_id: Identifier
    side_effect_class: Name | None = None
    permissions: Names | None = None
    labels: dict[Name, Names] | None = None


class ToolRegistered(StandardEvent, event_type="tool.registered"):
    """A tool has become available, or its definition has changed; it is also a capability.

    `definition` is all of `AtomicTool.definition`, `definition_hash` its hash; `agent_type` names the agent
    that has the tool.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("agent_type", "definition", "definition_hash")

    tool_id: Name
    name: Name
    description: Text
    source: Name
    input_schema: Object
    output_schema: Object | None = None
    capabilities: Names = Field(default_factory=list)
    permissions: Names = Field(default_factory=list)
    agent_type: AgentType | None = None
    definition: Object | None = None
    definition_hash: Name | None = None


class ToolAccepted(StandardEvent, event_type="tool.accepted"):
    """A person has accepted the definition of a tool that had changed under its name."""

    tool_id: Name
    agent_type: AgentType
    definition_hash: Name
    accepted_by: Name


class ToolInvocationRequested(StandardEvent, event_type="tool.invocation.requested"):
    """A call of another agent's tool: in the caller's journal, and a command in the provider's inbox.

    It is `capability.invoked` for a tool, which is also a capability; the fields beyond those of RFC-1001
    §12.1 have the same meaning as there. Without these fields it is not a valid inbox event.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("budget", "labels", "deadline_ms", "grant", "path", "allow_cycle")

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
    labels: Names | None = None
    budget: Amounts | None = None


class ToolInvocationCompleted(StandardEvent, event_type="tool.invocation.completed"):
    """The other agent's answer: in its journal, and in the caller's inbox. `error` is None on success.

    It is `capability.completed` for a tool.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "spent",
        "labels",
        "began",
    )

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
    labels: Names | None = None
    spent: Amounts | None = None


class TaskRequested(StandardEvent, event_type="task.requested"):
    """A task for whoever takes it (RFC-0001): in the requester's journal and in the capability's task topic.

    A subscriber of the capability hands it on to its agent's inbox, where it is a command: `run_id`, the id
    of the run that does it, is `task_id`. The fields beyond those of RFC-0001 have the meaning that they have
    in `capability.invoked`; without these fields it is not a valid command.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "budget",
        "labels",
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
    labels: Names | None = None
    budget: Amounts | None = None


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
        "spent",
        "labels",
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
    labels: Names | None = None
    spent: Amounts | None = None
