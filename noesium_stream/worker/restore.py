"""Reading a journal partition back: which runs are open, and how far the inbox was accepted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from noesium_stream.errors import CheckpointError
from noesium_stream.kernel import TERMINAL
from noesium_stream.log.headers import SEQUENCE, SOURCE
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.worker.collector import collector_paused


@dataclass(slots=True)
class Restored:
    """What a journal partition holds: records of open runs in order, ids of ended ones.

    `accepted` is the next offset of the inbox partition that the journal has no copy of; commands are
    accepted in the order of the inbox, so that everything below it was dealt with. `end` is where the journal
    was read to.
    """

    open: dict[str, list[Record]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    accepted: int = 0
    end: int = 0
    inbox_id: str | None = None


async def restore(log: EventLog, journal: str, inbox: str, partition: int) -> Restored:
    """Fold the journal up to its high watermark; the writer must be open, so that nobody else writes.

    The records of open runs are decoded. That each commit is whole is not counted (`noesium_commit`): no
    backend shows one in part. SQLite and memory write it in one transaction. On Kafka only a late EndTxn of
    the same producer could tear it, and a producer begins nothing more after a commit or an abort that was
    not plainly acknowledged (`kafka_producer`; `tests/integration/test_kafka_endtxn.py` delays them).

    Raises:
        CheckpointError: a run's sequence has a gap: the journal lost a record.
        LogTruncatedError, LogUnavailableError, CorruptRecordError
    """
    restored = Restored()
    end = await log.end(journal)
    until = {partition: end[partition]}
    restored.end = end[partition]
    with collector_paused():
        async for batch in log.read_batches(journal, {}, until=until):
            for record in batch:
                _take(restored, record, inbox)
        for records in restored.open.values():
            for record in records:
                record.envelope  # noqa: B018 - wanted soon, and the record keeps it
    return restored


async def read_runs(
    log: EventLog, journal: str, partition: int, offsets: tuple[int, int], run_ids: Collection[str]
) -> dict[str, list[Record]]:
    """The records of these runs by id, from the first of the two `offsets` up to the second, which was
    written; those of others are not decoded.

    Raises:
        CheckpointError: the sequence of a run has a gap.
        LogTruncatedError, LogUnavailableError
    """
    found: dict[str, list[Record]] = {run_id: [] for run_id in run_ids}
    first, end = offsets
    async for batch in log.read_batches(journal, {partition: first}, until={partition: end}):
        for record in batch:
            records = found.get(record.key)
            if records is not None:
                _add(records, record)
    return found


async def answers_in(log: EventLog, inbox: str, partition: int, first: int) -> dict[str, int]:
    """The runs that people have answered in the inbox, from the offset `first` on, and where last."""
    end = (await log.end(inbox))[partition]
    found: dict[str, int] = {}
    if first < end:
        until = {partition: end}
        async for record in log.read(inbox, {partition: first}, until=until, types=("approval.answered",)):
            found[record.key] = record.offset
    return found


def _take(restored: Restored, record: Record, inbox: str) -> None:
    headers = dict(record.headers)
    if record.event_type == "partition.acquired":
        inbox_id = record.envelope.payload["inbox_id"]
        if inbox_id != restored.inbox_id:
            # The inbox was made anew: offsets of the old one say nothing about it.
            restored.inbox_id, restored.accepted = inbox_id, 0
    source = headers.get(SOURCE)
    if source is not None:
        topic, _, offset = source.decode().rsplit("/", 2)
        if topic == inbox:
            restored.accepted = max(restored.accepted, int(offset) + 1)
    number = headers.get(SEQUENCE)
    if number is None or record.key in restored.ended:
        return
    records = restored.open.setdefault(record.key, [])
    if not _add(records, record):
        return
    if record.event_type in TERMINAL:
        del restored.open[record.key]
        restored.ended.add(record.key)


def _add(records: list[Record], record: Record) -> bool:
    """Put a run's next record to those before it; a repeated one is passed over: the first counts (law 2)."""
    number = record.header(SEQUENCE)
    sequence = int(number) if number is not None else -1
    if sequence < len(records):
        return False
    if sequence > len(records):
        raise CheckpointError(
            f"{record.topic}/{record.partition}@{record.offset}: run {record.key} goes from record "
            f"{len(records) - 1} to {sequence}; records between are missing.",
            hint="The journal was changed from outside or lost data; restore it before you go on.",
        )
    records.append(record)
    return True
