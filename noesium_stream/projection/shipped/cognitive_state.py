"""What `CognitiveProjection` keeps: a row per run and per memory. Times are milliseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field


@dataclass(slots=True)
class Message:
    """One turn of the conversation.

    `role` is `user` (what was asked, signals, people's answers) or `assistant` (questions to people, the
    result); `kind` is `input`, `signal`, `question`, `answer`, `result` or `error`; `by` is who said it,
    where that is known.
    """

    role: str
    kind: str
    content: Any
    at_ms: int
    by: str | None = None


@dataclass(slots=True)
class ToolUse:
    """A use of something outside: `kind` is `tool`, `effect` or `capability`; `status` is `running`,
    `completed`, `failed`, `timeout`, `unknown` or `unresolved`.
    """

    kind: str
    name: str
    input: Any
    began_ms: int
    node: str | None = None
    status: str = "running"
    output: Any = None
    error: str | None = None
    ended_ms: int | None = None


@dataclass(slots=True)
class PlanStep:
    """One superstep as it was executed: the nodes that ran in it."""

    step: int
    nodes: list[str]
    at_ms: int


@dataclass(slots=True)
class PlannedTask:
    """A task that the run gave out (`task.requested`): `open`, `done` or `failed`."""

    capability_id: str
    asked_ms: int
    status: str = "open"
    result: Any = None
    error: str | None = None


@dataclass(slots=True)
class Thought:
    """A model that was asked: what, by which node, and what it said; `error` where it failed."""

    model: str
    node: str | None
    prompt: Any
    at_ms: int
    answer: Any = None
    error: str | None = None


@dataclass(slots=True)
class RunMind:
    """One run: its conversation, what it used, what it did in which order, what models told it.

    `uses` is by call id; `plan` says the supersteps in their order, also those after a move to another
    version of the graph (`moves`); `tasks` is by task id. `open_nodes`: which node entered, by its event;
    `thinking`: which thought has no answer yet, by its effect's id.
    """

    kind: Literal["run"] = "run"
    run_id: str = ""
    agent_type: str = ""
    messages: list[Message] = field(default_factory=list)
    uses: dict[str, ToolUse] = field(default_factory=dict)
    plan: list[PlanStep] = field(default_factory=list)
    moves: list[str] = field(default_factory=list)
    tasks: dict[str, PlannedTask] = field(default_factory=dict)
    thoughts: list[Thought] = field(default_factory=list)
    thinking: dict[str, int] = field(default_factory=dict)
    open_nodes: dict[str, str] = field(default_factory=dict)
    ended: bool = False


@dataclass(slots=True)
class MemoryItem:
    """One key of an agent's durable memory (RFC-0004 §5.2): what was written last.

    `run_id`: the run that wrote it, where one did; `writes`: how often it was written.
    """

    kind: Literal["memory"] = "memory"
    agent_id: str = ""
    key: str = ""
    value: Any = None
    value_type: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    written_ms: int = 0
    event_id: str = ""
    run_id: str | None = None
    writes: int = 0


CognitiveState = Annotated[RunMind | MemoryItem, Field(discriminator="kind")]
