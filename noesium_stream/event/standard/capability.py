"""Capabilities: declared, found, invoked, answered (RFC-0005, RFC-1001 §10)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.standard.agent import ReplyTo


class DeterminismClass(StrEnum):
    """Whether the same input always gives the same output."""

    DETERMINISTIC = "deterministic"
    NONDETERMINISTIC = "nondeterministic"


class SideEffectClass(StrEnum):
    """What a second call with the same input would do to the world."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    EXTERNAL = "external"


class LatencyClass(StrEnum):
    """How long an answer takes: below 100 ms, 5 s, 60 s, or longer."""

    FAST = "fast"
    MEDIUM = "medium"
    SLOW = "slow"
    LONG = "long"


class CapabilityType(StrEnum):
    """What kind of thing fulfils it (RFC-0005); the first two are stateless."""

    IN_PROCESS_TOOL = "InProcessTool"
    REMOTE_TOOL = "RemoteTool"
    SUBAGENT = "Subagent"
    EXTERNAL_CLI_SUBAGENT = "ExternalCliSubagent"


class Capability(BaseModel):
    """Something that an agent can do for others; immutable and versioned (RFC-1001 §10.1)."""

    model_config = ConfigDict(frozen=True)

    id: str
    version: str = "1.0.0"
    description: str = ""
    capability_type: CapabilityType = CapabilityType.SUBAGENT
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    side_effects: SideEffectClass = SideEffectClass.EXTERNAL
    latency_class: LatencyClass = LatencyClass.MEDIUM
    determinism_class: DeterminismClass = DeterminismClass.NONDETERMINISTIC
    tags: list[str] = Field(default_factory=list)
    required_roles: list[str] = Field(default_factory=list)
    required_scopes: list[str] = Field(default_factory=list)
    priority: int = 0
    weight: int = Field(default=1, ge=0)


class CapabilityRegistered(DomainEvent, event_type="capability.registered"):
    """An agent offers a capability: the whole of it, schemas and metadata included."""

    agent_id: str
    agent_type: str
    capability: Capability


class CapabilityUpdated(DomainEvent, event_type="capability.updated"):
    """A new version of a capability that the agent offers already."""

    agent_id: str
    agent_type: str
    capability: Capability
    previous_version: str


class CapabilityDeprecated(DomainEvent, event_type="capability.deprecated"):
    """This version is not to be chosen any more."""

    agent_id: str
    capability_id: str
    version: str
    reason: str


class CapabilityRequested(DomainEvent, event_type="capability.requested"):
    """A step needs a capability; resolution follows."""

    run_id: str
    call_id: str
    capability_id: str
    version_range: str | None = None


class CapabilityInvoked(DomainEvent, event_type="capability.invoked"):
    """A provider was chosen and is asked: in the caller's journal, and a command in the provider's inbox.

    `run_id` is the run that the provider will make of it; `registry_offset` is how much of the registry
    the choice rests on. `deadline_ms` is the caller's own: what it waits for has to have ended by then, too.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("deadline_ms",)

    run_id: str
    capability_id: str
    version: str
    caller_agent_id: str
    caller_run_id: str
    target_agent_id: str
    target_agent_type: str
    registry_offset: int
    input: dict[str, Any]
    reply_to: ReplyTo
    attempt: int = Field(default=1, ge=1)
    deadline_ms: int | None = Field(default=None, ge=0)


class CapabilityCompleted(DomainEvent, event_type="capability.completed"):
    """The provider's answer: in its journal, and in the caller's inbox. `error` is None on success."""

    run_id: str
    call_id: str
    caller_run_id: str
    capability_id: str
    provider_agent_id: str
    output: Any = None
    error_type: str | None = None
    error: str | None = None


class CapabilityUnresolved(DomainEvent, event_type="capability.unresolved"):
    """Nobody offers what was asked for (RFC-0005); `considered` says who was left out and why."""

    run_id: str
    call_id: str
    capability_id: str
    version_range: str | None = None
    considered: list[str] = Field(default_factory=list)
