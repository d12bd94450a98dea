"""Events of a run's effects: intent, outcome and compensation (law 5).

Decision record: a compensation is an effect of its own, marked by `compensates`; so intent, key, result,
unknown outcome and a person's decision work the same way for both. `run.compensation.started` says why a run
ends before it has ended: from there on its graph is not executed any more, whatever happens to the process.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Text, Whole


class EffectRequested(StandardEvent, event_type="effect.requested"):
    """The intent of an external effect; written before it is performed (law 5).

    It is written again under the same `effect_id` if a person decides to repeat the call. `compensation` is
    the reference of the function or graph that undoes it: `module:name`, or `.name` for a method or attribute
    of the agent. `compensates` is set on an effect that undoes, and on those of the nodes of a graph that
    undoes: the `effect_id`, or `step/task_path` of a node, or the run.

    `deadline_ms` is when an external effect with a timeout will have ended, whatever happens to its process
    (milliseconds since the epoch): until then the next owner of the run waits for `effect.reported`. It
    counts from the time of the intent; if the log took the intent late, the call begins and ends as much
    later. Its outcome may be called unknown by then; a report before a person's decision still counts.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("deadline_ms",)

    run_id: Identifier
    effect_id: Identifier
    name: Name
    effect_class: Name
    fingerprint: Name
    idempotency_key: Name
    arguments: Any = None
    compensation: Name | None = None
    compensates: Text | None = None
    deadline_ms: Whole | None = Field(default=None, ge=0)


class EffectCompleted(StandardEvent, event_type="effect.completed"):
    """The effect was performed; replay reads `result`."""

    run_id: Identifier
    effect_id: Identifier
    result: Any = None
    duration_ms: Whole = Field(ge=0)


class EffectFailed(StandardEvent, event_type="effect.failed"):
    """The effect was refused, or its target could not be reached; a repetition has another idempotency key.

    `error_class` is `module:name` of the exception. `node_attempt` is the attempt of the node that saw it: an
    execution of the same attempt after a crash sees the same error and calls nothing; a later attempt tries
    again. With `retry_in_ms` the effect's own policy tries it again, that long after this event. With
    `awaits_decision` a person decides how to proceed (a compensation that failed).
    """

    run_id: Identifier
    effect_id: Identifier
    error_type: Name
    message: Text
    duration_ms: Whole = Field(ge=0)
    error_class: Name | None = None
    node_attempt: Whole | None = Field(default=None, ge=1)
    retry_in_ms: Whole | None = Field(default=None, ge=0)
    awaits_decision: bool = False


class EffectOutcomeUnknown(StandardEvent, event_type="effect.outcome.unknown"):
    """The effect was started and its outcome is unknown; a person decides (`effect.resolved`)."""

    run_id: Identifier
    effect_id: Identifier
    reason: Text
    node_attempt: Whole | None = Field(default=None, ge=1)


class EffectReported(StandardEvent, event_type="effect.reported"):
    """The outcome of a call that ended after its process had given the run up; sent to the run's inbox.

    `not_begun`: the call will never begin, so that the next owner makes it.

    It concerns the call that the intent `intent_id` announced. The run's owner accepts it once, while the
    outcome is missing or waits for a person, and writes `effect.completed` or `effect.failed` from it. It has
    the fields of both.
    """

    run_id: Identifier
    effect_id: Identifier
    intent_id: Name
    outcome: Literal["completed", "failed", "not_begun"]
    duration_ms: Whole = Field(ge=0)
    result: Any = None
    error_type: Name | None = None
    message: Text | None = None
    error_class: Name | None = None


class EffectResolved(StandardEvent, event_type="effect.resolved"):
    """A command: the outcome of an effect, as found out or decided by a person.

    `result`: it was performed, with this result. `retry`: call it again, under the same idempotency key.
    `fail`: it was not performed, and the node gets an error; a compensation is given up. `outcome_id` is the
    event that it answers, so that it cannot decide a later question.
    """

    run_id: Identifier
    effect_id: Identifier
    decision: Literal["result", "retry", "fail"]
    result: Any = None
    reason: Text | None = None
    resolved_by: Name
    outcome_id: Name | None = None


class Compensated(BaseModel, defer_build=True):
    """A compensation of a part of a run, and whether it was performed or given up by a person."""

    name: Name
    compensates: Text
    outcome: Literal["completed", "given_up"]


class CompensationStarted(StandardEvent, event_type="run.compensation.started"):
    """The run is ending and its effects are being undone, last first; its terminal event follows."""

    run_id: Identifier
    cause: Literal["failed", "cancelled"]
    error_type: Name
    message: Text
    hint: Text | None = None
    where: Text | None = None

    def payload(self) -> dict[str, Any]:
        """The fields as JSON values, `where` only if it is known."""
        payload = super().payload()
        if self.where is None:
            del payload["where"]
        return payload
