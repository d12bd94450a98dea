"""Reads a journal partition back: the records since the state file was written, and those of given runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from noesium_stream.errors import (
    CheckpointError,
    CorruptRecordError,
    LogTruncatedError,
    ProjectionError,
    StateFileError,
)
from noesium_stream.log.headers import CE_ID, SEQUENCE
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker.gc_tuning import collector_paused
from noesium_stream.worker.state.journal_entry import entry_of
from noesium_stream.worker.state.known_runs import Bounds, OpenRun, spans_of
from noesium_stream.worker.state.partition_state import PartitionState, sum_of
from noesium_stream.worker.state.stale_files import mark
from noesium_stream.worker.state.state_file import Identity, StateFile, open_state_file

MALFORMED: Final = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError)
"""Errors of the fold for a record with wrong headers or a wrong payload; of decoding too (ValueError)."""

READ_GAP: Final = 2_000
"""Spans closer than this many records are read in one go: a new read costs a broker as much time."""


def state_path(home: Path, identity: Identity, agent_type: str) -> Path:
    """Path of the state file of a partition; each journal topic has a folder."""
    return states_of(home, agent_type) / quote(identity.journal_id, safe="") / f"{identity.partition}.db"


def states_of(home: Path, agent_type: str) -> Path:
    """Folder of the state files of an agent type."""
    return home / "worker" / agent_type


async def restore(
    log: EventLog,
    home: Path,
    agent_type: str,
    partition: int,
    bounds: Bounds,
    progress: Callable[[str], None],
    *,
    generation: int = 1,
    in_file: bool = True,
) -> PartitionState:
    """Restore the state of a partition as of its journal's high watermark.

    The fenced writer must be open, so that no other process writes.

    The records of a commit are not counted (`noesium_commit`): no backend shows a part of a commit. SQLite
    and memory write it in one transaction. On Kafka only a late EndTxn of the same producer could tear it,
    and a producer begins no transaction after a commit or an abort that was not plainly acknowledged
    (`transactional_producer`; `tests/integration/kafka/test_endtxn.py` delays them).

    Args:
        log: the log that has the journal.
        home: folder of the worker's files on this machine.
        agent_type: agent type of the journal.
        partition: number of the journal partition.
        bounds: how long and how many ended runs are known.
        progress: takes one line that says why a file was not used.
        generation: generation of the journal.
        in_file: whether to keep the state in a file.

    Raises:
        CheckpointError: a record is malformed, or a run's sequence has a gap: the journal lost a record; or
            the inbox did.
        LogTruncatedError, LogUnavailableError, CorruptRecordError
    """
    journal = log.topology.journal(agent_type, generation)
    inbox = log.topology.inbox(agent_type, generation)
    identity = Identity(journal, await log.topic_id(journal), partition)
    if not in_file:
        return await _folded(log, StateFile.in_memory(identity), inbox, bounds)
    path = state_path(home, identity, agent_type)
    # On a full disk both attempts fail: the state is then kept in memory.
    for then in ("It is made anew: the journal is read from its beginning.", "The state is kept in memory."):
        file = open_state_file(path, identity, progress)
        mark(path.parent, log.url)
        is_new = file.manifest.last_offset is None
        try:
            return await _folded(log, file, inbox, bounds)
        except (ProjectionError, LogTruncatedError) as error:
            if file.path is None or (is_new and isinstance(error, LogTruncatedError)):
                file.close()
                raise
            progress(f"{error.message} {then}")
            file.discard()
        except BaseException:
            file.close()
            raise
    return await _folded(log, StateFile.in_memory(identity), inbox, bounds)


async def _folded(log: EventLog, file: StateFile, inbox: str, bounds: Bounds) -> PartitionState:
    """Bring a state up to the journal's high watermark.

    Raises:
        StateFileError: the journal lacks a record that the file has folded, or the inbox one that was read.
        CheckpointError: the inbox lacks a record that was dealt with according to the journal.
    """
    identity = file.manifest.identity
    journal, partition = identity.journal, identity.partition
    state = PartitionState(file, inbox, bounds)
    until = {partition: (await log.end(journal))[partition]}
    known = file.manifest.last_offset
    cursor = {} if known is None else {partition: known}
    missing = known is not None
    if known is not None and known >= until[partition]:
        raise file.broken(f"the journal ends at {until[partition]}, before what was folded last")
    with collector_paused():
        async for batch in log.read_batches(journal, cursor, until=until):
            for record in batch:
                if missing:
                    _require_known(file, record)
                    missing = False
                    continue
                _fold(state, record)
    if missing:
        raise file.broken(f"the journal has no record {known} any more")
    file.manifest.cursor = until[partition]
    lacks = await _lacking(log, state, inbox, partition)
    if lacks is None:
        return state
    if known is not None:
        raise file.broken(lacks)
    raise CheckpointError(
        f"{inbox}/{partition}: {lacks}: what comes in from here on would be taken for what was dealt with.",
        hint="The log lost data, or a backup was restored. Restore it as a whole; or delete the inbox topic "
        "and let it be made anew: its offsets count from the beginning then.",
    )


async def _lacking(log: EventLog, state: PartitionState, inbox: str, partition: int) -> str | None:
    """Find out whether the inbox is the one that was read; return why not, or None if it may be.

    Another inbox is shorter, or has other records.
    """
    until = state.inbox_until
    end = (await log.end(inbox))[partition]
    if until > end:
        return f"the inbox ends at {end}, and was read to {until}"
    last = max(filter(None, (state.manifest.last_read, state.manifest.last_copy)), default=None)
    if last is None or last[0] < (await log.beginning(inbox))[partition]:
        return None
    offset = last[0]
    async for record in log.read(inbox, {partition: offset}, until={partition: offset + 1}):
        if record.offset != offset:
            break
        try:
            if last[1] in (sum_of(record), record.unchecked.event_id):
                return None
        except CorruptRecordError:
            return None  # a damaged record cannot be compared with the one that was copied
    return f"the inbox has another record at {offset} than was read there"


def _fold(state: PartitionState, record: Record) -> None:
    try:
        state.evolve(entry_of(record))
    except MALFORMED as error:
        raise _unreadable(record, error) from error


def _unreadable(record: Record, error: Exception) -> CheckpointError:
    """The error for a journal record that its owner cannot have written."""
    return CheckpointError(
        f"{record.topic}/{record.partition}@{record.offset}: a journal record cannot be read "
        f"({type(error).__name__}).",
        hint="The journal was changed from outside or is damaged; restore it before you go on.",
    )


def _require_known(file: StateFile, record: Record) -> None:
    found = record.header(CE_ID)
    event_id = found.decode(errors="replace") if found is not None else record.envelope.event_id
    if (record.offset, event_id) != (file.manifest.last_offset, file.manifest.last_event_id):
        raise StateFileError(f"{file.path}: the journal has another record where it was read to.")


async def read_runs(
    log: EventLog, journal: str, partition: int, runs: Mapping[str, OpenRun]
) -> dict[str, list[Record]]:
    """Read the records of these runs, by run id; records of other runs are not decoded.

    Of a run in a later segment these are its first two and those from the beginning of the segment on.

    Raises:
        CheckpointError: the sequence of a run has a gap.
        LogTruncatedError, LogUnavailableError, CorruptRecordError
    """
    found: dict[str, list[Record]] = {run_id: [] for run_id in runs}
    with collector_paused():
        for first, last in spans_of(runs.values(), READ_GAP):
            until = {partition: last + 1}
            async for batch in log.read_batches(journal, {partition: first}, until=until):
                for record in batch:
                    run = runs.get(record.key)
                    if run is None or record.offset < run.spans[0][0]:
                        continue
                    if _add(found[record.key], record, run):
                        record.envelope  # noqa: B018 - needed soon, and the record caches it
    return found


async def answers_in(log: EventLog, inbox: str, partition: int, first: int) -> dict[str, int]:
    """Find the runs that people have answered in the inbox from offset `first` on, with the last offsets."""
    end = (await log.end(inbox))[partition]
    found: dict[str, int] = {}
    if first < end:
        until = {partition: end}
        async for record in log.read(inbox, {partition: first}, until=until, types=("approval.answered",)):
            found[record.key] = record.offset
    return found


def _add(records: list[Record], record: Record, run: OpenRun) -> bool:
    """Append a run's next record; skip a repeated one: the first counts (law 2)."""
    number = record.header(SEQUENCE)
    try:
        sequence = int(number) if number is not None else -1
    except ValueError as error:
        raise _unreadable(record, error) from error
    follows = run.follows(len(records))
    if sequence < follows:
        return False
    if sequence > follows:
        raise CheckpointError(
            f"{record.topic}/{record.partition}@{record.offset}: run {record.key} goes from record "
            f"{follows - 1} to {sequence}; records between are missing.",
            hint="The journal was changed from outside or lost data; restore it before you go on.",
        )
    records.append(record)
    return True
