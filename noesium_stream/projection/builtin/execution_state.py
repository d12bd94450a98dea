"""State of `ExecutionProjection`: a row per run and per agent. Times are milliseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from noesium_stream.event.rules.run_life import RunLife

CIRCUIT_OPENS: Final = 5
"""Number of consecutive failures that opens a circuit."""


@dataclass(slots=True)
class Task:
    """A task of a superstep that has not completed: `running`, `retrying` (since a failure) or `failed`.

    `due_ms`: the time of the next attempt. `entered_id`: the id of its `kernel.node.entered`, which is the
    causation id of the task's events.
    """

    node: str
    step: int
    task_path: str
    entered_ms: int
    entered_id: str
    attempt: int = 1
    status: str = "running"
    due_ms: int | None = None


@dataclass(slots=True)
class NodeCounts:
    """Task counts of a node: `entered` counts each task once, `failed` and `retried` each attempt."""

    entered: int = 0
    completed: int = 0
    failed: int = 0
    retried: int = 0
    duration_ms: int = 0
    error: str | None = None


@dataclass(slots=True)
class UseCounts:
    """Call counts of one tool or one effect name; `begun` minus the other counts are in progress."""

    begun: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    unknown: int = 0
    duration_ms: int = 0
    error: str | None = None


@dataclass(slots=True)
class CallState:
    """A call to another agent, keyed by its child run's id.

    `status` is `requested` as long as no provider was chosen (`version` is then the range that is wanted),
    `asked`, `answered`, `failed`, or `unresolved` if nobody offers the capability. A run that has ended takes
    no answers: its calls keep their last status.
    """

    capability_id: str
    version: str
    agent_type: str
    invoked_ms: int
    task: str | None
    status: str = "asked"
    answered_ms: int | None = None
    error: str | None = None


@dataclass(slots=True)
class EffectState:
    """An effect that is `running`, `retrying` (at `due_ms`), or waits for a person (`undecided`).

    `fingerprint` is the same for all attempts of one call; each attempt has an id of its own. A `retrying`
    attempt goes when the next one is requested, or when its node completes or fails.
    """

    name: str
    effect_class: str
    since_ms: int
    task: str | None
    fingerprint: str
    status: str = "running"
    compensates: str | None = None
    outcome_id: str | None = None
    reason: str | None = None
    due_ms: int | None = None


@dataclass(slots=True)
class PendingApproval:
    """An unanswered question to a person, or to `minimum` people, of whom `approved_by` have approved."""

    node: str
    question: Any
    asked_ms: int
    task: str | None
    approvers: list[str] = field(default_factory=list)
    deadline_ms: int | None = None
    minimum: int | None = None
    approved_by: list[str] = field(default_factory=list)


@dataclass(slots=True)
class PendingTimer:
    """A timer that has not fired yet."""

    node: str
    due_ms: int
    task: str | None


@dataclass(slots=True)
class PendingSignal:
    """A wait for a signal, which ends after `missing` more of this name."""

    node: str
    name: str
    missing: int
    task: str | None


@dataclass(slots=True)
class Circuit:
    """Consecutive failures of an effect, tool or capability; removed at its next success.

    `open` from `CIRCUIT_OPENS` failures on. It only reports what the journal shows: no call is refused
    because of it.
    """

    failures: int = 0
    failed_ms: int = 0
    error: str | None = None
    open: bool = False


@dataclass(slots=True)
class RunState(RunLife):
    """One run.

    `status` is `requested`, `running`, `waiting` (each open task waits for an answer, a timer, another agent,
    a signal, a person's decision or its next attempt), `stranded` (`reason` says why), `compensating`,
    `completed`, `failed`, `cancelled` or `expired`. `waits_for` lists the reasons: `approval`, `call`,
    `effect` (a person decides about its outcome), `retry` (the next attempt of a node or an effect),
    `signal`, `timer`.

    Keys: `nodes` by name, `tasks` by `step:task_path`, `calls` and `open_calls` (the waiting task) by the
    child run's id, `effects` and `tools` by name, `open_effects`, `approvals`, `timers` and `awaited`
    (signals) by id, `circuits` by `effect:NAME`, `tool:NAME` or `capability:ID`.
    """

    kind: Literal["run"] = "run"
    run_id: str = ""
    agent_type: str = ""
    agent_version: str | None = None
    status: str = "requested"
    waits_for: list[str] = field(default_factory=list)
    reason: str | None = None
    error: str | None = None
    label: str = ""
    result: Any = None
    requested_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    parent_run_id: str | None = None
    root_run_id: str | None = None
    forked_from: str | None = None
    cancel_requested: bool = False
    instance: str = ""
    takeovers: int = 0
    moves: list[str] = field(default_factory=list)
    signals: int = 0
    retries: int = 0
    nodes: dict[str, NodeCounts] = field(default_factory=dict)
    tasks: dict[str, Task] = field(default_factory=dict)
    calls: dict[str, CallState] = field(default_factory=dict)
    open_calls: dict[str, str | None] = field(default_factory=dict)
    effects: dict[str, UseCounts] = field(default_factory=dict)
    open_effects: dict[str, EffectState] = field(default_factory=dict)
    tools: dict[str, UseCounts] = field(default_factory=dict)
    approvals: dict[str, PendingApproval] = field(default_factory=dict)
    timers: dict[str, PendingTimer] = field(default_factory=dict)
    timers_fired: int = 0
    awaited: dict[str, PendingSignal] = field(default_factory=dict)
    circuits: dict[str, Circuit] = field(default_factory=dict)


@dataclass(slots=True)
class AgentState:
    """One agent, as recorded in the registry.

    `status` is `running` (at least one process has not reported that it stopped), `stopped` or `unavailable`.
    `live` maps instances to their start times; a killed instance stays there. At most the newest 100
    instances remain.
    """

    kind: Literal["agent"] = "agent"
    agent_id: str = ""
    agent_type: str = ""
    agent_version: str = ""
    status: str = "stopped"
    reason: str | None = None
    changed_ms: int = 0
    starts: int = 0
    stops: int = 0
    outages: int = 0
    live: dict[str, int] = field(default_factory=dict)


ExecutionState = Annotated[RunState | AgentState, Field(discriminator="kind")]
