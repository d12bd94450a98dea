"""The state of a recorded run after a superstep: the graph walks over recorded deltas, and no body runs."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.errors import GraphBubbleUp

from noesium_stream.errors import CheckpointError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.kernel.journal import RunIdentity
from noesium_stream.kernel.recording.end_of_recording import StillClock
from noesium_stream.kernel.recording.fork import shared_history
from noesium_stream.kernel.recording.recorded_journal import RecordedJournal
from noesium_stream.kernel.recording.recorded_run import RecordedRun
from noesium_stream.kernel.run_history import RunHistory
from noesium_stream.kernel.state.typed_json import building, decode, encode
from noesium_stream.kernel.verify.verifier import ReplayTarget
from noesium_stream.kernel.verify.versions import parts


def _journal(run: RecordedRun, step: int, moved_by: tuple[EventEnvelope, ...] = ()) -> RecordedJournal:
    """A journal of the deltas up to a superstep."""
    started = run.started
    history = RunHistory()
    for event in (*moved_by, *shared_history(run, step, {})):
        history.apply(event)
    identity = RunIdentity(run.run_id, started.producer, started.trace, run.run_id, started.event_id)
    return RecordedJournal(history, identity, StillClock(run.events[-1].event.timestamp_ms))


async def state_at(
    target: ReplayTarget, run: RecordedRun, step: int, *, moved: bool = False
) -> dict[str, Any]:
    """The state after superstep `step`, as JSON by channel; 0 is the state that the run began with.

    Args:
        target: the run's code.
        run: its recording.
        step: superstep.
        moved: if the run was moved to another version after that superstep: return the state of the move, and
            not the older version's state before it.

    Raises:
        CheckpointError: the run has not completed that step, the graph does not get there, or an older
            version made that step, which `target` does not include.
    """
    split = parts(run)
    if len(split) == 1:
        return await _state_at(target.of(split[0].ref) or target, run, step, ())
    if moved:
        for part in reversed(split):
            if part.move is not None and part.move.payload["step"] == step + 1:
                found: dict[str, Any] = part.move.payload["state"]
                return found
    part = next((part for part in split if part.until is None or step < part.until), split[-1])
    code = target.of(part.ref) or (target if part.until is None else None)
    if code is None:
        raise CheckpointError(
            f"Step {step} of run {run.run_id} was made by version {part.ref.version}, which this code does "
            "not carry.",
            hint="Keep that graph among the agent's migrations, or give its code with --graph.",
        )
    return await _state_at(code, part.run, step, (part.move,) if part.move is not None else ())


async def _state_at(
    target: ReplayTarget, run: RecordedRun, step: int, moved_by: tuple[EventEnvelope, ...]
) -> dict[str, Any]:
    journal = _journal(run, step, moved_by)
    moved, durable = journal.history.migrated, target.durable()
    with building(durable.reach.builds):
        state: Any = None if moved is None else decode(moved.payload["state"])
    begun = 0 if moved is None else int(moved.payload["step"]) - 1
    initial = None if moved is not None else target.begin(run)
    config: RunnableConfig = {"recursion_limit": target.recursion_limit}
    modes = ["debug", "values"]
    try:
        stream: Any = durable.stream(journal, initial, config, stream_mode=modes)
        async with aclosing(stream) as chunks:
            async for mode, chunk in chunks:
                if mode == "debug" and chunk["type"] == "task":
                    begun = chunk["step"]
                elif mode == "values" and "__interrupt__" not in chunk:
                    state = chunk  # a step that changes nothing has no chunk
    except GraphBubbleUp:
        pass
    except Exception:
        if begun < step:
            raise  # a failure after the requested step does not concern its state
    reached = begun - 1 if journal.ended else begun
    if reached < step:
        raise CheckpointError(
            f"On what run {run.run_id} recorded the graph comes to step {max(reached, 0)}, not to {step}.",
            hint="It is not the graph that the run was made with; `noesium verify` says what differs.",
        )
    recorded: dict[str, Any] = encode(state, "state")
    return recorded


def reduced_channels(target: ReplayTarget) -> frozenset[str]:
    """The channels of the state that have a reducer."""
    return frozenset(
        name
        for name, channel in target.graph.channels.items()
        if isinstance(channel, BinaryOperatorAggregate)
    )
