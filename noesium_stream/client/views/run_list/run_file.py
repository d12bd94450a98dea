"""The runs of an agent type as they were last listed on this machine: a list then reads later records only.

A file for each agent type holds the runs and, for each partition of inbox and journal, the offset up to which
they are folded; both are written in one transaction (RFC-0004 §7). The answers are the same without it. One
that is damaged, of another version, of a log that was made anew or restored, or behind what its log retains
is discarded, and all records are folded again. A file that another process writes is left alone.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from noesium_stream.client.views.run_list.run_fold import RunFold
from noesium_stream.client.views.runs import RUN_TYPES, RunInfo
from noesium_stream.client.views.waits import Place
from noesium_stream.client.views.where import Asked, asked_of
from noesium_stream.errors import CorruptRecordError, StateFileError, SubjectKeyError
from noesium_stream.log.generations import Generation
from noesium_stream.log.port import Cursor, EventLog
from noesium_stream.log.record import Record
from noesium_stream.private_files import make_folder
from noesium_stream.projection.event_headers import id_if_told
from noesium_stream.projection.state.same_log import Folded, other_events
from noesium_stream.state_file.claim import discard, locked
from noesium_stream.state_file.sqlite import Translating, connect, keep_order

FOLDER: Final = "runs.list"
"""Below the folder of projections; no projection has such a name."""
_KEPT: Final = tuple(one.name for one in fields(RunInfo) if one.name != "waits_for")
VERSION: Final = f"1 {' '.join(_KEPT)}"
_SCHEMA: Final = """
CREATE TABLE about (version TEXT NOT NULL);
CREATE TABLE cursor (topic TEXT NOT NULL, partition INTEGER NOT NULL, topic_id TEXT NOT NULL,
    next INTEGER NOT NULL, last_offset INTEGER, last_event_id TEXT, PRIMARY KEY (topic, partition));
CREATE TABLE run (run_id TEXT PRIMARY KEY, sum INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE asked (run_id TEXT PRIMARY KEY, sum INTEGER NOT NULL, body TEXT NOT NULL);
"""


class _Rows(dict[str, RunInfo]):
    """Runs by id that remembers which of them may have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.touched.add(key)
        return super().get(key, default)

    def __setitem__(self, key: str, value: RunInfo) -> None:
        self.touched.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        self.touched.add(key)
        super().__delitem__(key)


class _Cursor(NamedTuple):
    """How far a partition is folded; `last_*` is the last record that was read."""

    topic_id: str
    next: int
    last_offset: int | None
    last_event_id: str | None


_Cursors = dict[tuple[str, int], _Cursor]


class RunFile:
    """The file of one agent type.

    Args:
        log: the log.
        folder: where projections keep their states of this log on this machine.
        agent_type: the agent type.
    """

    def __init__(self, log: EventLog, folder: Path, agent_type: str) -> None:
        self.path = folder / FOLDER / f"{agent_type}.db"
        self._log = log
        self._agent_type = agent_type

    async def fold(self, generations: Iterable[Generation], *, asked: bool) -> RunFold:
        """Fold what the log has now, of the agent type's open generations.

        Args:
            generations: the generations.
            asked: whether the fold has to have what the commands say (`Asked`).

        Raises:
            StateBusyError: another process writes the file.
            ProjectionError, OSError: it cannot be written.
            LogUnavailableError
        """
        make_folder(self.path.parent)
        with locked(self.path):
            try:
                return await self._fold(list(generations), asked)
            except StateFileError:
                discard(self.path)
                return await self._fold(list(generations), asked)

    async def _fold(self, generations: list[Generation], asked: bool) -> RunFold:
        with Translating(self.path), closing(_opened(self.path)) as db:
            cursors = _cursors(db)
            # The journals' ends first: whatever they say of a command, the inbox has it below its own end.
            ends = {one.journal: await self._log.end(one.journal) for one in generations}
            ends |= {one.inbox: await self._log.end(one.inbox) for one in generations}
            starts = {topic: await self._starts(topic, until, cursors) for topic, until in ends.items()}
            rows = _Rows()
            fold = RunFold(self._agent_type, asked_of, rows)
            _load(db, fold, {one.number: one for one in generations}, asked)
            rows.touched.clear()
            known, is_whole = set(fold.noted), True
            for generation in generations:
                for topic in (generation.inbox, generation.journal):
                    async for record in self._log.read(
                        topic, starts[topic], until=ends[topic], types=RUN_TYPES
                    ):
                        if not fold.take(record, generation) and _lacks_key(record):
                            is_whole = False  # who has the key can read it: this fold is not for others
                        rows.touched.add(record.key)
                        place = topic, record.partition
                        cursors[place] = cursors[place]._replace(
                            last_offset=record.offset, last_event_id=id_if_told(record)
                        )
            if is_whole:
                new = {run_id: one for run_id, one in fold.noted.items() if run_id not in known}
                _write(db, fold, rows.touched, new, cursors, ends)
            return fold

    async def _starts(self, topic: str, until: Cursor, cursors: _Cursors) -> dict[int, int]:
        """Where to begin to read a topic's partitions.

        Raises:
            StateFileError: the file does not fit the log.
        """
        topic_id, first = await self._log.topic_id(topic), await self._log.beginning(topic)
        is_journal = ".journal" in topic
        folded = []
        for partition, end in until.items():
            known = cursors.setdefault(
                (topic, partition), _Cursor(topic_id, first.get(partition, 0), None, None)
            )
            if known.topic_id != topic_id or known.next > end:
                raise StateFileError(f"{self.path} is of another {topic}/{partition}.")
            if is_journal and known.next < first.get(partition, 0):
                raise StateFileError(f"{self.path} is behind what {topic}/{partition} retains.")
            folded.append(Folded(partition, known.last_offset, known.last_event_id))
        for error in (await other_events(self._log, topic, folded)).values():
            raise error
        return {
            partition: max(cursors[topic, partition].next, first.get(partition, 0)) for partition in until
        }


def _opened(path: Path) -> sqlite3.Connection:
    db = connect(path)
    try:
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            db.executescript(_SCHEMA)
            db.execute("INSERT INTO about VALUES (?)", (VERSION,))
        if db.execute("SELECT version FROM about").fetchall() != [(VERSION,)]:
            raise StateFileError(f"{path} has another version.")
        keep_order(db)
    except BaseException:
        db.close()
        raise
    return db


def _cursors(db: sqlite3.Connection) -> _Cursors:
    return {
        (topic, partition): _Cursor(*rest) for topic, partition, *rest in db.execute("SELECT * FROM cursor")
    }


def _load(db: sqlite3.Connection, fold: RunFold, generations: Mapping[int, Generation], asked: bool) -> None:
    for run_id, check, body in db.execute("SELECT run_id, sum, body FROM run ORDER BY rowid"):
        number, partition, offset, *values = _read(run_id, check, body, 3 + len(_KEPT))
        if number not in generations:
            continue  # its topics are gone
        fold.runs[run_id] = RunInfo(**dict(zip(_KEPT, values, strict=True)))
        fold.places[run_id] = Place(generations[number], partition, offset)
    for run_id, check, body in db.execute(f"SELECT run_id, sum, {'body' if asked else 'NULL'} FROM asked"):
        fold.noted[run_id] = Asked(*_read(run_id, check, body, 3)) if asked else None


def _read(run_id: str, check: int, body: str, size: int) -> list[Any]:
    """The values of a row.

    Raises:
        StateFileError: the row is damaged.
    """
    if not isinstance(body, str) or crc32(f"{run_id} {body}".encode()) != check:
        raise StateFileError(f"The row of the run {run_id} is damaged.")
    values = json.loads(body)
    if not isinstance(values, list) or len(values) != size:
        raise StateFileError(f"The row of the run {run_id} has another form.")
    return values


def _row(run_id: str, values: Iterable[Any]) -> tuple[str, int, str]:
    body = json.dumps(list(values))
    return run_id, crc32(f"{run_id} {body}".encode()), body


def _write(
    db: sqlite3.Connection,
    fold: RunFold,
    touched: Iterable[str],
    asked: Mapping[str, Asked],
    cursors: _Cursors,
    ends: Mapping[str, Cursor],
) -> None:
    runs, gone = [], []
    for run_id in sorted(touched):
        run, place = fold.runs.get(run_id), fold.places.get(run_id)
        if run is None or place is None:
            gone.append((run_id,))
        else:
            at = place.generation.number, place.partition, place.offset
            runs.append(_row(run_id, [*at, *(getattr(run, name) for name in _KEPT)]))
    db.execute("BEGIN IMMEDIATE")
    try:
        db.executemany("DELETE FROM run WHERE run_id = ?", gone)
        db.executemany(
            "INSERT INTO run VALUES (?, ?, ?) ON CONFLICT (run_id)"
            " DO UPDATE SET sum = excluded.sum, body = excluded.body",
            runs,
        )
        db.executemany("INSERT OR REPLACE INTO asked VALUES (?, ?, ?)", [_row(*one) for one in asked.items()])
        folded = [
            (
                topic,
                partition,
                *cursors[topic, partition]._replace(next=max(end, cursors[topic, partition].next)),
            )
            for topic, until in ends.items()
            for partition, end in until.items()
        ]
        db.executemany("INSERT OR REPLACE INTO cursor VALUES (?, ?, ?, ?, ?, ?)", folded)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _lacks_key(record: Record) -> bool:
    """Whether a record cannot be read here for lack of a data subject's key."""
    try:
        _ = record.unchecked
    except CorruptRecordError as error:
        return isinstance(error.cause, SubjectKeyError)
    return False
