"""Kernel events of a run's steps (RFC-0003, RFC-1001 §6.2)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, model_validator

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Names, Text, Whole


class NodeEntered(StandardEvent, event_type="kernel.node.entered"):
    """A node starts; `task_path` identifies the task within its superstep.

    `compensation` is the reference of the function that undoes the whole node, as in `effect.requested`;
    `input_hash` is set where a graph starts that was called from a node's body. `argument` is what a `Send`
    gave the node, in one short line for people; nothing compares it.
    """

    run_id: Identifier
    node: Name
    step: Whole = Field(ge=0)
    task_path: Name
    attempt: Whole = Field(ge=1)
    deterministic: bool
    entropy_sources: Names = Field(default_factory=list)
    compensation: Name | None = None
    input_hash: Name | None = None
    argument: Name | None = None

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("entropy_sources", "compensation", "input_hash", "argument")
    PERSONAL: ClassVar[tuple[str, ...]] = ("argument",)


class NodeCompleted(StandardEvent, event_type="kernel.node.completed"):
    """A node is done: `delta` is its return value, in a form that can be replayed.

    `entropy_sources` lists the sources of a nondeterministic node (RFC-0002). `taken`: by the name of
    signals, one more than the number of the last one that the node has taken.
    """

    run_id: Identifier
    node: Name
    step: Whole = Field(ge=0)
    task_path: Name
    attempt: Whole = Field(ge=1)
    delta: Any = None
    duration_ms: Whole = Field(ge=0)
    entropy_sources: Names = Field(default_factory=list)
    taken: dict[Name, Whole] | None = None

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("entropy_sources", "taken")


class NodeFailed(StandardEvent, event_type="kernel.node.failed"):
    """A node raised (RFC-0003 §11); without `retry_in_ms` this was its last attempt.

    `input_hash` is the SHA-256 of the input state, for nodes that may be retried. `where` is the place in the
    user's code (`FILE:LINE in FUNCTION`), `traceback` its text, without the frames that call the node; both
    are for people, and nothing compares them.
    """

    run_id: Identifier
    node: Name
    step: Whole = Field(ge=0)
    task_path: Name
    attempt: Whole = Field(ge=1)
    error_type: Name
    message: Text
    duration_ms: Whole = Field(ge=0)
    retry_in_ms: Whole | None = Field(default=None, ge=0)
    input_hash: Name | None = None
    hint: Text | None = None
    where: Text | None = None
    traceback: Text | None = None

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("hint", "where", "traceback")


class SignalAwaited(StandardEvent, event_type="kernel.signal.awaited"):
    """A step waits for a signal: the run goes on after `missing` more of this name.

    It is for those who look at a run. Nothing that a run does depends on it, and no replay repeats it: a step
    that finds its signal on the log does not wait.
    """

    run_id: Identifier
    wait_id: Identifier
    node: Name
    name: Name
    missing: Whole = Field(ge=1)


class NodeRetried(StandardEvent, event_type="kernel.node.retried"):
    """A failed node starts again on the same input state (RFC-0003 §9).

    `branch`: the input differs from that of the failed attempt; a new branch follows.
    """

    run_id: Identifier
    node: Name
    step: Whole = Field(ge=0)
    task_path: Name
    attempt: Whole = Field(ge=2)
    cause: Name
    branch: bool = False


class CheckpointCreated(StandardEvent, event_type="kernel.checkpoint.created"):
    """A superstep ended and the state is recorded (RFC-0003 §10).

    `checkpoint_id` is `RUN/STEP`; `parent_id` is omitted if it is the run's own `RUN/STEP-1`. `state_hash` is
    the SHA-256 of the canonical form of the state after the superstep (see
    `noesium_stream.kernel.state.state_hash`); journals of earlier releases have none.
    """

    run_id: Identifier
    checkpoint_id: Name
    parent_id: Name | None = None
    step: Whole
    nodes: Names = Field(default_factory=list)
    state_hash: Name | None = None

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("state_hash",)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Restore the default parent if it was omitted."""
        if not isinstance(given, dict) or "parent_id" in given or not isinstance(given.get("step"), int):
            return given
        parent = cls._usual_parent(given.get("run_id"), given["step"])
        return {**given, "parent_id": parent}

    @staticmethod
    def _usual_parent(run_id: Any, step: int) -> str | None:
        return f"{run_id}/{step - 1}" if step > 1 else None

    def payload(self) -> dict[str, Any]:
        """The fields as JSON values, without the default parent."""
        payload = super().payload()
        if self.parent_id == self._usual_parent(self.run_id, self.step):
            del payload["parent_id"]
        return payload
