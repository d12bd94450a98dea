"""What the kernel says of a run's steps (RFC-0003, RFC-1001 §6.2)."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from noesium_stream.event.domain import DomainEvent


class NodeEntered(DomainEvent, event_type="kernel.node.entered"):
    """A node begins; `task_path` identifies the task within its superstep.

    `compensation` is where the function that undoes the whole node is found, as in `effect.requested`;
    `input_hash` is there where a graph begins that a node's body has called.
    """

    run_id: str
    node: str
    step: int = Field(ge=0)
    task_path: str
    attempt: int = Field(ge=1)
    deterministic: bool
    entropy_sources: list[str] = Field(default_factory=list)
    compensation: str | None = None
    input_hash: str | None = None

    def payload(self) -> dict[str, Any]:
        """The fields as JSON values, without what most nodes do not have: there is one for each step."""
        return _without_empty(super().payload(), "entropy_sources", "compensation", "input_hash")


class NodeCompleted(DomainEvent, event_type="kernel.node.completed"):
    """A node is done: `delta` is what it returned, in a form that can be replayed.

    `entropy_sources` says what it drew on if it is not deterministic (RFC-0002).
    """

    run_id: str
    node: str
    step: int = Field(ge=0)
    task_path: str
    attempt: int = Field(ge=1)
    delta: Any = None
    duration_ms: int = Field(ge=0)
    entropy_sources: list[str] = Field(default_factory=list)

    def payload(self) -> dict[str, Any]:
        """As that of `NodeEntered`."""
        return _without_empty(super().payload(), "entropy_sources")


class NodeFailed(DomainEvent, event_type="kernel.node.failed"):
    """A node raised (RFC-0003 §11); without `retry_in_ms` this was its last attempt.

    `input_hash` is the SHA-256 of the input state, of nodes that may be retried. `where` is the place in the
    user's code (`FILE:LINE in FUNCTION`), `traceback` its text, without the frames of how a node is called;
    both are for people, and nothing compares them.
    """

    run_id: str
    node: str
    step: int = Field(ge=0)
    task_path: str
    attempt: int = Field(ge=1)
    error_type: str
    message: str
    duration_ms: int = Field(ge=0)
    retry_in_ms: int | None = Field(default=None, ge=0)
    input_hash: str | None = None
    hint: str | None = None
    where: str | None = None
    traceback: str | None = None

    def payload(self) -> dict[str, Any]:
        """As that of `NodeEntered`."""
        return _without_empty(super().payload(), "hint", "where", "traceback")


class NodeRetried(DomainEvent, event_type="kernel.node.retried"):
    """A node that failed begins again on the same input state (RFC-0003 §9).

    `branch`: the input is another one than that of the attempt which failed; what follows is a new branch.
    """

    run_id: str
    node: str
    step: int = Field(ge=0)
    task_path: str
    attempt: int = Field(ge=2)
    cause: str
    branch: bool = False


class CheckpointCreated(DomainEvent, event_type="kernel.checkpoint.created"):
    """A superstep ended and the state is recorded (RFC-0003 §10).

    `checkpoint_id` is `RUN/STEP`; `parent_id` is left out where it is the run's own `RUN/STEP-1`.
    `state_hash` is the SHA-256 of the canonical form of the state after the superstep (see
    `noesium_stream.kernel.state_hash`); journals of earlier releases have none.
    """

    run_id: str
    checkpoint_id: str
    parent_id: str | None = None
    step: int
    nodes: list[str] = Field(default_factory=list)
    state_hash: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Put the usual parent back where it was left out."""
        if not isinstance(given, dict) or "parent_id" in given or not isinstance(given.get("step"), int):
            return given
        parent = cls._usual_parent(given.get("run_id"), given["step"])
        return {**given, "parent_id": parent}

    @staticmethod
    def _usual_parent(run_id: Any, step: int) -> str | None:
        return f"{run_id}/{step - 1}" if step > 1 else None

    def payload(self) -> dict[str, Any]:
        """As that of `NodeEntered`."""
        payload = _without_empty(super().payload(), "state_hash")
        if self.parent_id == self._usual_parent(self.run_id, self.step):
            del payload["parent_id"]
        return payload


def _without_empty(payload: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        if not payload[name]:
            del payload[name]
    return payload
