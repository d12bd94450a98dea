"""Events of capabilities: declaration, resolution, call and answer (RFC-0005, RFC-1001 §10)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

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
    Texts,
    Version,
    Whole,
)


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


class Capability(BaseModel, defer_build=True):
    """A service that an agent offers to others; immutable and versioned (RFC-1001 §10.1)."""

    model_config = ConfigDict(frozen=True)

    id: Name
    version: Version = "1.0.0"
    description: Text = ""
    capability_type: CapabilityType = CapabilityType.SUBAGENT
    input_schema: Object
    output_schema: Object
    side_effects: SideEffectClass = SideEffectClass.EXTERNAL
    latency_class: LatencyClass = LatencyClass.MEDIUM
    determinism_class: DeterminismClass = DeterminismClass.NONDETERMINISTIC
    tags: Names = Field(default_factory=list)
    required_roles: Names = Field(default_factory=list)
    required_scopes: Names = Field(default_factory=list)
    priority: Whole = 0
    weight: Whole = Field(default=1, ge=0)


class CapabilityRegistered(StandardEvent, event_type="capability.registered"):
    """An agent offers a capability; the event has all of its schemas and metadata."""

    agent_id: Name
    agent_type: AgentType
    capability: Capability


class CapabilityUpdated(StandardEvent, event_type="capability.updated"):
    """A new version of a capability that the agent already offers."""

    agent_id: Name
    agent_type: AgentType
    capability: Capability
    previous_version: Version


class CapabilityDeprecated(StandardEvent, event_type="capability.deprecated"):
    """This version is no longer to be chosen."""

    agent_id: Name
    capability_id: Name
    version: Version
    reason: Text


class CapabilityRequested(StandardEvent, event_type="capability.requested"):
    """A step needs a capability; the choice of a provider follows, in the same commit or a later one.

    `deadline_ms` (milliseconds since the epoch) is the call's own: from then on the step does not wait.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("deadline_ms",)

    run_id: Identifier
    call_id: Identifier
    capability_id: Name
    version_range: Version | None = None
    deadline_ms: Whole | None = Field(default=None, ge=0)


class CapabilityInvoked(StandardEvent, event_type="capability.invoked"):
    """A provider was chosen and is called: in the caller's journal, and a command in the provider's inbox.

    `run_id` is the run that the provider will create for it; `registry_offset` is the registry position that
    the choice is based on. `deadline_ms`, the caller's own or the call's: the called run must have ended by
    then. `grant` is what the called run may act with, narrowed from the caller's. `attempt` counts the
    providers that were tried for one request. `path`: the agent types of the calling runs, from the root of
    the tree to the caller. `allow_cycle`: the called agent may be among them. `budget`: the share of the
    caller's budget that the called run may spend.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("labels", "deadline_ms", "grant", "path", "allow_cycle", "budget")

    run_id: Identifier
    capability_id: Name
    version: Version
    caller_agent_id: Name
    caller_run_id: Identifier
    target_agent_id: Name
    target_agent_type: AgentType
    registry_offset: Whole
    input: Object
    reply_to: ReplyTo
    attempt: Whole = Field(default=1, ge=1)
    deadline_ms: Whole | None = Field(default=None, ge=0)
    grant: Grant | None = None
    path: Path = Field(default_factory=list)
    allow_cycle: bool | None = None
    labels: Names | None = None
    budget: Amounts | None = None


class CapabilityCompleted(StandardEvent, event_type="capability.completed"):
    """The provider's answer: in its journal, and in the caller's inbox. `error` is None on success.

    `began` false: the provider has not begun to work, so that another one may. `spent`: what it, and the runs
    below it, have spent of the budget that it was given.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "labels",
        "began",
        "spent",
    )

    run_id: Identifier
    call_id: Identifier
    caller_run_id: Identifier
    capability_id: Name
    provider_agent_id: Name
    output: Any = None
    error_type: Name | None = None
    error: Text | None = None
    began: bool | None = None
    labels: Names | None = None
    spent: Amounts | None = None


class CapabilityUnresolved(StandardEvent, event_type="capability.unresolved"):
    """Nobody offers the capability (RFC-0005); `considered` lists the excluded offers with reasons."""

    run_id: Identifier
    call_id: Identifier
    capability_id: Name
    version_range: Version | None = None
    considered: Texts = Field(default_factory=list)


class CapabilityRefused(StandardEvent, event_type="capability.refused"):
    """A call that the caller itself refuses: its arguments, the result that came, or one call too many.

    `call_id` is that of the request if nothing was sent, else that of the call. The error is the step's.
    """

    run_id: Identifier
    call_id: Identifier
    capability_id: Name
    error_type: Name
    error: Text


class CapabilityExpired(StandardEvent, event_type="capability.expired"):
    """A call's own deadline has passed without an answer, by the caller's clock; an answer comes too late.

    `call_id` as in `capability.refused`.
    """

    run_id: Identifier
    call_id: Identifier
    capability_id: Name
    deadline_ms: Whole = Field(ge=0)


class CapabilityCircuitOpened(StandardEvent, event_type="capability.circuit.opened"):
    """So many calls in a row of what an agent offers have failed: others are chosen for a while."""

    agent_id: Name
    agent_type: AgentType
    capability_id: Name
    failures: Whole = Field(ge=1)
    reason: Text


class CapabilityCircuitProbed(StandardEvent, event_type="capability.circuit.probed"):
    """An open circuit has been open for long enough: the next call says whether it closes."""

    agent_id: Name
    agent_type: AgentType
    capability_id: Name


class CapabilityCircuitClosed(StandardEvent, event_type="capability.circuit.closed"):
    """A call has succeeded: the agent is chosen as before."""

    agent_id: Name
    agent_type: AgentType
    capability_id: Name
