"""Life cycle events of agents, their partitions and their runs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from noesium_stream.event.domain_event import Form
from noesium_stream.event.standard.attributes import Attributes
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.effect import Compensated
from noesium_stream.event.standard.forms import (
    AgentType,
    Identifier,
    Name,
    Names,
    Object,
    Permissions,
    Text,
    Texts,
    Version,
    Whole,
)


class AgentStarted(StandardEvent, event_type="agent.started"):
    """A process has started to work for an agent (RFC-1001 §6.2)."""

    agent_id: Name
    agent_type: AgentType
    agent_version: Version
    instance_id: Name
    capabilities: Names = Field(default_factory=list)


class AgentStopped(StandardEvent, event_type="agent.stopped"):
    """A process has stopped its work for an agent in an orderly way."""

    agent_id: Name
    agent_type: AgentType
    instance_id: Name
    reason: Text


class PartitionStatus(BaseModel, defer_build=True):
    """Status of an owned partition.

    Attributes:
        partition: the partition of the agent type's inbox and journal, or of `topic`.
        topic: the topic that is read; None: the inbox.
        epoch: its writer's epoch; it grows with each owner.
        next_offset: everything in the inbox below it was processed.
        open_runs: the number of open runs, including those that only wait.
        oldest_step_ms: when the active run without output for the longest time wrote last (ms since 1970);
            None: no run is active.
        parked: the number of runs and requests that the owner cannot continue with.
        waits_for: some of what they wait for: versions of the graph, as in `versions` of a heartbeat, and
            reasons of deferred requests.
        stopped: why the owner works on nothing here until the worker is started again, such as a journal
            record that cannot be read; `epoch` and `next_offset` are then 0. None: it works.
    """

    partition: Whole = Field(ge=0)
    epoch: Whole = Field(ge=0)
    next_offset: Whole = Field(ge=0)
    open_runs: Whole = Field(ge=0)
    oldest_step_ms: Whole | None = None
    topic: Name | None = None
    parked: Whole = Field(default=0, ge=0)
    waits_for: Texts = Field(default_factory=list)
    stopped: Text | None = None


class AgentHeartbeat(StandardEvent, event_type="agent.heartbeat"):
    """A heartbeat; `sequence` counts from 0 within a process.

    `process` is `host/pid`; `partitions` are those that it owns and works on; `versions` are the graphs that
    it carries, with the one for new runs first: `triage 1.0.0 (1a2b3c4d)`.
    """

    agent_id: Name
    agent_type: AgentType
    instance_id: Name
    sequence: Whole = Field(ge=0)
    open_runs: Whole = Field(ge=0)
    interval_ms: Whole = Field(gt=0)
    process: Name | None = None
    partitions: list[PartitionStatus] | None = None
    versions: Names | None = None


class AgentUnavailable(StandardEvent, event_type="agent.unavailable"):
    """An agent missed its heartbeats (RFC-0005)."""

    agent_id: Name
    agent_type: AgentType
    reason: Text
    last_heartbeat_id: Name | None = None


class AgentRecovered(StandardEvent, event_type="agent.recovered"):
    """An agent that was unavailable sends heartbeats again (RFC-0005)."""

    agent_id: Name
    agent_type: AgentType
    heartbeat_id: Name | None = None


class PartitionAcquired(StandardEvent, event_type="partition.acquired"):
    """A process owns a partition from here on; first record of its writer's epoch.

    `inbox_id` is the id of the inbox topic: offsets of the following copies refer to that topic, and not to
    one that was recreated under the same name. `in_order`: the following copies are in the order of the
    inbox, so that everything below the last one was decided; else the copies' header `noesium_inbox` says up
    to where that holds.
    """

    agent_type: AgentType
    partition: Whole = Field(ge=0)
    writer_id: Name
    epoch: Whole = Field(ge=0)
    instance_id: Name
    inbox_id: Name
    in_order: bool = True


class PartitionConfirmed(StandardEvent, event_type="partition.confirmed"):
    """The owner has verified its ownership after a pause, before it calls anything external.

    It says nothing about the partition's runs; readers may skip it.
    """

    agent_type: AgentType
    partition: Whole = Field(ge=0)
    epoch: Whole = Field(ge=0)
    instance_id: Name


class HandlerAdvanced(StandardEvent, event_type="handler.advanced"):
    """Read position of a handler in a partition; last record of each of its commits.

    `topic_id` is the id of the topic: `next_offset` refers to that topic, and not to one that was recreated
    under the same name. `handled` events were read in this commit, and `made` events were produced from them.
    `began_at` is the handler's first offset: earlier events were no longer retained.
    """

    agent_type: AgentType
    topic: Name
    topic_id: Name
    partition: Whole = Field(ge=0)
    next_offset: Whole = Field(ge=0)
    handled: Whole = Field(ge=0)
    made: Whole = Field(ge=0)
    began_at: Whole = Field(default=0, ge=0)


class ReplyTo(BaseModel, defer_build=True):
    """Recipient of an answer: a run of an agent, and its call within that run."""

    agent_type: AgentType
    run_id: Identifier
    call_id: Identifier


class Grant(BaseModel, defer_build=True):
    """The roles and scopes that a run acts with (RFC-0005): those of `principal`, or fewer; None: any.

    `permissions` and `mode` limit what the agent's tools may do in the run (see `event/trust/permission.py`);
    None, which is left out: nobody has limited them. `parent` is the hash of the grant that it was narrowed
    from, the calling run's; None: it comes from the policy itself. See `event/trust/grants.py`.
    """

    model_config = ConfigDict(frozen=True)

    principal: Identifier
    roles: Names | None = Field(default_factory=list)
    scopes: Names | None = Field(default_factory=list)
    parent: Name | None = None
    permissions: Permissions | None = None
    mode: Name | None = None

    @model_serializer(mode="wrap")
    def _without_limits(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialized(self)
        return {
            name: value
            for name, value in fields.items()
            if value is not None or name not in ("permissions", "mode")
        }


class ToolLimits(BaseModel, defer_build=True):
    """What the tools of a run may do at most: permissions and a mode, as in `Grant`; None: not limited."""

    model_config = ConfigDict(frozen=True)

    permissions: Permissions | None = None
    mode: Name | None = None


Account = Annotated[str, Form(maxLength=256, pattern="^(user|tenant):[^\\u0000-\\u001f]{1,200}$")]
"""Who pays for calls of models: `user:NAME` or `tenant:NAME`."""
Accounts = Annotated[list[Account], Form(maxItems=16)]


class Amounts(BaseModel, defer_build=True):
    """Money (10⁻⁹ USD), tokens, calls of models and wall time: limits of a budget, or what was spent of it.

    None, which is left out: not limited, or not counted. `accounts`: the users and tenants that pay beside,
    each within its own budget. See `event/rules/budget.py`.
    """

    model_config = ConfigDict(frozen=True)

    nano_usd: Whole | None = Field(default=None, ge=0)
    tokens: Whole | None = Field(default=None, ge=0)
    calls: Whole | None = Field(default=None, ge=0)
    wall_ms: Whole | None = Field(default=None, ge=0)
    accounts: Accounts | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialized(self)
        return {name: value for name, value in fields.items() if value is not None}


class GraphRef(BaseModel, defer_build=True):
    """The graph that a run is pinned to: its id, semantic version and fingerprint."""

    graph_id: Name
    version: Version
    fingerprint: Name


UNKNOWN_LABEL: Final = "unknown-history"
"""The label of what a fork shares, if its command does not say which labels that has."""


class ForkRef(BaseModel, defer_build=True):
    """The point where a run branches off another run of its agent type: after superstep `step`.

    `step` 0 is the start. `values` are parts of the state, by channel, that differ from there on; `reduced`
    names those whose channels have a reducer, which the value bypasses. `capability_id` is the other run's.
    `taken`: of the signals of a name, so many the steps until there have taken; the fork hears its own from
    there on. An earlier release counts them from 0. `labels` and `said` are the provenance of what the fork
    shares and of `values` (see `event/rules/provenance.py`); None: an earlier release has not recorded it.
    """

    run_id: Identifier
    step: Whole = Field(ge=0)
    capability_id: Name | None = None
    values: Object = Field(default_factory=dict)
    reduced: Names = Field(default_factory=list)
    taken: dict[Name, Annotated[Whole, Field(ge=0)]] = Field(default_factory=dict)
    labels: Names | None = None
    said: Text = ""


class RunRequested(StandardEvent, event_type="run.requested"):
    """A command: run an agent on this input; `run_id` is the partition key.

    With `fork` the run shares another one's history and begins where that one was. A run that has not ended
    by `deadline_ms` (milliseconds since the epoch) is ended then. `agent_version` is a range of the agent's
    versions (`^2`): only a worker that carries one of them starts the run. `capability_id`: which of the
    agent's capabilities is asked for. `limits`: what the run's tools may do at most. `budget`: what the run
    and those below it may spend at most. `attributes`: what it is found by.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "deadline_ms",
        "agent_version",
        "capability_id",
        "limits",
        "budget",
        "attributes",
    )
    PERSONAL: ClassVar[tuple[str, ...]] = ("attributes",)

    run_id: Identifier
    agent_type: AgentType
    input: Object
    reply_to: ReplyTo | None = None
    fork: ForkRef | None = None
    deadline_ms: Whole | None = Field(default=None, ge=0)
    agent_version: Version | None = None
    capability_id: Name | None = None
    limits: ToolLimits | None = None
    budget: Amounts | None = None
    attributes: Attributes | None = None


class RunStarted(StandardEvent, event_type="run.started"):
    """The owner has accepted a command; everything that identifies the run is pinned here.

    The input is in the command, whose copy precedes this event in the same commit. `forked_from`: the run
    whose journal holds the shared history. `on_failure`: the reference of the last compensation of a run that
    ends without a result, as `compensation` in `effect.requested`. `deadline_ms` is the command's.
    `waited_ms`: how old a command with a `ttl_ms` is, from when the log took it. `refused`: why the policy
    does not allow the command; the run ends at once. `grant`: what it acts with; None: nobody limits it.
    `budget`: what it and the runs below it may spend, as the command says.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("deadline_ms", "waited_ms", "refused", "grant", "budget")

    run_id: Identifier
    agent_type: AgentType
    agent_version: Version
    graph: GraphRef
    capability_id: Name | None = None
    reply_to: ReplyTo | None = None
    forked_from: ForkRef | None = None
    on_failure: Name | None = None
    deadline_ms: Whole | None = Field(default=None, ge=0)
    waited_ms: Whole | None = Field(default=None, ge=0)
    refused: Text | None = None
    grant: Grant | None = None
    budget: Amounts | None = None


class RunMigrated(StandardEvent, event_type="run.migrated"):
    """An open run continues with another graph from superstep `step` on, which begins with this `state`.

    Attributes:
        from_graph, to_graph: the graphs that it was and is now pinned to.
        step: the superstep that the old graph would have started or had not ended; numbering continues.
        state: the state before `step`, by channel of the new graph, with types as in deltas.
        next: nodes of the new graph that run in `step`.
        joins: nodes that have arrived at a join which still awaits others, by the join's channel.
        deferred: nodes that are due when nothing else is left to do.
        renamed: names of the new graph's nodes, by those of the old one; other nodes kept their names.
    """

    run_id: Identifier
    agent_version: Version
    from_graph: GraphRef
    to_graph: GraphRef
    step: Whole = Field(ge=1)
    state: Object
    next: Names
    joins: dict[Name, Names] = Field(default_factory=dict)
    deferred: Names = Field(default_factory=list)
    renamed: dict[Name, Name] = Field(default_factory=dict)


class RunParked(StandardEvent, event_type="run.parked"):
    """The owner cannot continue an open run: the run waits for a worker that carries its `graph`.

    Written once per reason; `run.resumed`, `run.migrated` or the end of the run ends it.
    """

    run_id: Identifier
    reason: Text
    graph: GraphRef


class RunResumed(StandardEvent, event_type="run.resumed"):
    """A worker that carries the graph of a stranded run continues it."""

    run_id: Identifier


class RunCompleted(StandardEvent, event_type="run.completed"):
    """The run has its result; nothing follows."""

    run_id: Identifier
    result: Any = None
    duration_ms: Whole = Field(ge=0)


class RunFailed(StandardEvent, event_type="run.failed"):
    """The run ended with an error; nothing follows.

    `compensated`: the compensations of its parts, in that order. `where` as in `kernel.node.failed`.
    """

    run_id: Identifier
    error_type: Name
    message: Text
    node: Name | None = None
    duration_ms: Whole = Field(ge=0)
    compensated: list[Compensated] = Field(default_factory=list)
    hint: Text | None = None
    where: Text | None = None

    def payload(self) -> dict[str, Any]:
        """The fields as JSON values, `where` only if it is known."""
        payload = super().payload()
        if self.where is None:
            del payload["where"]
        return payload


class RunCancelled(StandardEvent, event_type="run.cancelled"):
    """The run ended on request; nothing follows. `compensated` as in `run.failed`."""

    run_id: Identifier
    reason: Text | None = None
    requested_by: Name
    duration_ms: Whole = Field(ge=0)
    compensated: list[Compensated] = Field(default_factory=list)


class RunCancelRequested(StandardEvent, event_type="run.cancel.requested"):
    """A command: end this run."""

    run_id: Identifier
    reason: Text | None = None


class RunDeadlinePassed(StandardEvent, event_type="run.deadline.passed"):
    """The run had not ended by its deadline, by its owner's clock: from here on it is ending.

    Its effects are compensated, and `run.failed` follows with `DeadlineExceededError`.
    """

    run_id: Identifier
    deadline_ms: Whole = Field(ge=0)


class RunSignalled(StandardEvent, event_type="run.signalled"):
    """An external message to an open run."""

    run_id: Identifier
    name: Name
    value: Any = None


class CommandExpired(StandardEvent, event_type="command.expired"):
    """A command was older than its `ttl_ms` when its turn came, and was not executed (RFC-0002)."""

    run_id: Identifier
    command_id: Name
    ttl_ms: Whole
    age_ms: Whole


class CommandRefused(StandardEvent, event_type="command.refused"):
    """A command of `principal` was not executed: the policy does not allow it, or it is a call that the agent
    does not take.
    """

    run_id: Identifier
    command_id: Name
    principal: Name
    message: Text
