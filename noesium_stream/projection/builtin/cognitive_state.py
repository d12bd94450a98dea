"""State of `CognitiveProjection`: a row per run and per memory. Times are milliseconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field


@dataclass(slots=True)
class Message:
    """One turn of the conversation.

    `role` is `user` (commands, signals, people's answers) or `assistant` (questions to people, the result).
    `kind` is `input`, `signal`, `question`, `answer`, `result` or `error`. `by` is the author, if known.
    """

    role: str
    kind: str
    content: Any
    at_ms: int
    by: str | None = None


@dataclass(slots=True)
class ToolUse:
    """One use of an external tool, effect or capability.

    `kind` is `tool`, `effect` or `capability`; `status` is `running`, `completed`, `failed`, `timeout`,
    `unknown` or `unresolved`.
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
    """One executed superstep: the nodes that ran in it."""

    step: int
    nodes: list[str]
    at_ms: int


@dataclass(slots=True)
class PlannedTask:
    """A task that the run delegated (`task.requested`): `open`, `done` or `failed`."""

    capability_id: str
    asked_ms: int
    status: str = "open"
    result: Any = None
    error: str | None = None


@dataclass(slots=True)
class Thought:
    """One model call: the prompt, the calling node and the response; `error` if the call failed."""

    model: str
    node: str | None
    prompt: Any
    at_ms: int
    answer: Any = None
    error: str | None = None


@dataclass(slots=True)
class RunMind:
    """Conversation, tool uses, plan and reasoning of one run.

    `uses` is keyed by call id. `plan` lists the supersteps in order, including those after a move to another
    version of the graph (`moves`). `tasks` is keyed by task id. `open_nodes` maps a `kernel.node.entered`
    event to its node; `thinking` maps an effect id to its thought without a response.
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
    """The latest write of one key in an agent's durable memory (RFC-0004 §5.2).

    `run_id`: the run that wrote it, if any; `writes`: the number of writes.
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
