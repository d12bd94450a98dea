"""Events of capabilities: declaration, resolution, call and answer (RFC-0005, RFC-1001 §10)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard.agent import ReplyTo


class DeterminismClass(StrEnum):
    """Whether the same input always gives the same output."""

    DETERMINISTIC = "deterministic"
    NONDETERMINISTIC = "nondeterministic"


class SideEffectClass(StrEnum):
    """External effect of a second call with the same input."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    EXTERNAL = "external"


class LatencyClass(StrEnum):
    """Time to an answer: below 100 ms, 5 s, 60 s, or longer."""

    FAST = "fast"
    MEDIUM = "medium"
    SLOW = "slow"
    LONG = "long"


class CapabilityType(StrEnum):
    """Kind of the provider (RFC-0005); the first two are stateless."""

    IN_PROCESS_TOOL = "InProcessTool"
    REMOTE_TOOL = "RemoteTool"
    SUBAGENT = "Subagent"
    EXTERNAL_CLI_SUBAGENT = "ExternalCliSubagent"


class Capability(BaseModel):
    """A service that an agent offers to others; immutable and versioned (RFC-1001 §10.1)."""

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
    """An agent offers a capability; the event has all of its schemas and metadata."""

    agent_id: str
    agent_type: str
    capability: Capability


class CapabilityUpdated(DomainEvent, event_type="capability.updated"):
    """A new version of a capability that the agent already offers."""

    agent_id: str
    agent_type: str
    capability: Capability
    previous_version: str


class CapabilityDeprecated(DomainEvent, event_type="capability.deprecated"):
    """This version is no longer to be chosen."""

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
    """A provider was chosen and is called: in the caller's journal, and a command in the provider's inbox.

    `run_id` is the run that the provider will create for it; `registry_offset` is the registry position that
    the choice is based on. `deadline_ms` is the caller's own: the called run must have ended by then, too.
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
    """Nobody offers the capability (RFC-0005); `considered` lists the excluded offers with reasons."""

    run_id: str
    call_id: str
    capability_id: str
    version_range: str | None = None
    considered: list[str] = Field(default_factory=list)
