"""Executes a fork in memory: the steps after it, their calls, and where it ends or stops.

Bodies run. What the recorded run got for the same call at the same place, a body gets again. New calls are
listed and not made, except effects of the class PURE; the step that needs their results stops, others of the
superstep go on. External actions of a body without an effect do happen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp

from noesium_stream.errors import brief
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.standard import ForkRef
from noesium_stream.kernel.dry_run.dry_run_journal import MAX_CALLS, DryRunJournal, DryStep
from noesium_stream.kernel.recording.fork import initial_of
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.verify.verifier import ReplayTarget


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a fork would do.

    Attributes:
        outcome: `stopped`: results are needed that only the outside world can give.
        steps: the nodes that ran, in order.
        result: the run's result, if it completed.
        error: the error, if it failed.
        most_calls: new PURE calls and pauses after which a step stops.
    """

    outcome: Literal["completed", "failed", "stopped"]
    steps: tuple[DryStep, ...]
    result: Any = None
    error: str | None = None
    most_calls: int = MAX_CALLS


async def dry_run(
    target: ReplayTarget, parent: RecordedRun, ref: ForkRef, prepare: Callable[[], Awaitable[None]]
) -> DryRun:
    """Execute the fork `ref` of `parent` with the code `target`; nothing is written.

    Args:
        target: the code.
        parent: the recording of the run to branch off.
        ref: where, and with which values.
        prepare: awaited before each call of a PURE effect.
    """
    journal = DryRunJournal(parent, ref, prepare)
    config: RunnableConfig = {"recursion_limit": target.recursion_limit}
    result = None
    try:
        initial = None  # a moved run goes on with the state of the move
        if journal.history.migrated is None:
            initial = initial_of(ref.model_dump(), target.initial_state(parent.input, ref.capability_id))
        state = await target.durable().execute(journal, initial, config)
        if not journal.ended:
            result = to_json(target.result(state), "result")
    except GraphBubbleUp:
        journal.ended = True
    except Exception as error:
        steps = tuple(journal.steps.values())
        return DryRun("failed", steps, error=f"{type(error).__name__}: {brief(error)}")
    outcome: Literal["completed", "stopped"] = "stopped" if journal.ended else "completed"
    return DryRun(outcome, tuple(journal.steps.values()), result)
