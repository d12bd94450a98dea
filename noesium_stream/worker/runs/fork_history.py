"""The history that a fork shares with its parent run, read from the parent's journal."""

from __future__ import annotations

from typing import Any, Final

from noesium_stream.errors import LogUnavailableError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.standard import ForkRef
from noesium_stream.kernel.recording.fork import check_questions, inherit, initial_of, shared_history
from noesium_stream.kernel.recording.recorded_run import RecordedRun, recorded_run
from noesium_stream.log.generations import generations
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of
from noesium_stream.worker.runs.run_session import RunSession

_PAUSE_S: Final = 0.25


async def read_recorded(log: EventLog, agent_type: str, run_id: str, graph: str | None = None) -> RecordedRun:
    """Read a run from its journal as of now; a fork comes with its shared history.

    Raises:
        CheckpointError: the journal does not hold the run from its beginning.
        CorruptRecordError: a record cannot be decoded.
    """
    records: list[Record] = []
    for generation in await generations(log, agent_type):
        if not records:
            records = await _records(log, generation.journal, run_id)
    run = recorded_run(records, graph)
    fork = run.started.payload.get("forked_from")
    if fork is None:
        return run
    return recorded_run(records, graph, await shared_of(log, agent_type, fork))


async def _records(log: EventLog, journal: str, run_id: str) -> list[Record]:
    ends = await log.end(journal)
    partition = partition_of(run_id, len(ends))
    records: list[Record] = []
    async for batch in log.read_batches(journal, {}, until={partition: ends[partition]}):
        for record in batch:
            if record.key == run_id and int(record.header(SEQUENCE) or -1) == len(records):
                records.append(record)
    return records


async def shared_of(log: EventLog, agent_type: str, fork: dict[str, Any]) -> tuple[EventEnvelope, ...]:
    """Read the history that a fork shares with its parent.

    Raises:
        CheckpointError: the parent's journal does not have it.
    """
    ref, parent = await _parent(log, agent_type, fork)
    return shared_history(parent, ref.step, ref.values, tuple(ref.reduced))


async def _parent(log: EventLog, agent_type: str, fork: dict[str, Any]) -> tuple[ForkRef, RecordedRun]:
    ref = ForkRef.model_validate(fork)
    return ref, await read_recorded(log, agent_type, ref.run_id)


async def begin_fork(log: EventLog, agent_type: str, session: RunSession, initial: Any) -> Any:
    """Put the shared history into a fork's session; return the state that the fork starts with.

    Waits while the log is unavailable: no run fails because of that.

    Raises:
        CheckpointError: the parent's journal does not have the shared history, a question to certain people
            was asked in it, or values are given for a state without keys.
    """
    started = session.history.started
    if started is None:
        raise ValueError("a fork begins after run.started")
    fork = started.payload["forked_from"]
    while True:
        try:
            ref, parent = await _parent(log, agent_type, fork)
            if not session.history.entered:  # else it has begun, under an earlier release
                check_questions(parent, ref.step)
            inherit(session.history, shared_history(parent, ref.step, ref.values, tuple(ref.reduced)))
            return initial_of(fork, initial)
        except LogUnavailableError:
            await session.clock.sleep(_PAUSE_S)
