"""`MemoryStore`: the memory of a log in one local file, folded from its events (RFC-0004 §5.2, §7).

The file holds the facts and, per partition, the offset up to which they are folded; both are written in one
transaction. Several processes may use one file: whoever needs the newest facts folds what is missing. A file
that is damaged, of another version, or of another log is discarded and folded anew.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

from noesium_stream.errors import (
    EventError,
    LogTruncatedError,
    StateBusyError,
    StateFileError,
    SubjectKeyError,
    brief,
)
from noesium_stream.event.sealing.seal import is_erased
from noesium_stream.log.headers import ORIGIN, SEQUENCE
from noesium_stream.log.port import EventLog
from noesium_stream.log.record import Record
from noesium_stream.log.topics import TopicKind
from noesium_stream.memory.ephemeral import RUN
from noesium_stream.memory.fact import TYPES, Fact, Retraction, told_by
from noesium_stream.memory.fold import COLUMNS, SCHEMA, MemoryFold, fact_of
from noesium_stream.private_files import make_folder
from noesium_stream.state_file.claim import discard
from noesium_stream.state_file.sqlite import Translating, connect, keep_order

VERSION: Final = 3
"""Version of the file's form and of the fold; a file of another one is discarded."""
FACTS: Final = "memory"
"""The domain of the topic for facts that no run writes."""

_T = TypeVar("_T")
_META: Final = """
CREATE TABLE about (version INTEGER NOT NULL, tick INTEGER NOT NULL, id TEXT NOT NULL);
CREATE TABLE cursor (topic TEXT NOT NULL, partition INTEGER NOT NULL, topic_id TEXT NOT NULL,
    next INTEGER NOT NULL, PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE refused (topic TEXT NOT NULL, partition INTEGER NOT NULL, position INTEGER NOT NULL,
    reason TEXT NOT NULL, PRIMARY KEY (topic, partition, position)) WITHOUT ROWID;
"""
_BUSY_MS: Final = 10_000
_ADVANCE: Final = 2_000
"""Offsets without a fact after which the file notes how far the log was read."""


def store_path(home: Path, log_url: str) -> Path:
    """Where a log's memory is kept on this machine."""
    return home / "memory" / f"{sha256(log_url.encode()).hexdigest()[:12]}.db"


class MemoryStore:
    """The memory of one log, in one file. Threads of the process share one object.

    Args:
        path: the file; its folder is made.
        report: called with one sentence when the file had to be discarded.
        hold: called before the file is opened.
    """

    def __init__(
        self,
        path: Path,
        report: Callable[[str], None] = lambda text: None,
        hold: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self._report = report
        self._hold = hold
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        self._catching_up: asyncio.Lock | None = None
        self._looked: dict[tuple[str, str, str], dict[int, int]] = {}
        """How far this process has read behind the file's cursors, by the file's id, topic and topic id."""

    def close(self) -> None:
        """Close the file. Idempotent."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for queries; no other thread uses it meanwhile.

        Raises:
            StateFileError: the file is damaged; the next `catch_up` folds it anew.
        """
        with self._lock, Translating(self.path):
            yield self._opened()

    async def catch_up(self, log: EventLog) -> None:
        """Fold what the log holds now. Calls share one reading of the log.

        A record that cannot be decoded is noted (`refused`) and passed over.

        Raises:
            LogTruncatedError: the log has lost events that were not folded.
            LogUnavailableError
            ProjectionError: the file cannot be written.
        """
        if self._catching_up is None:
            self._catching_up = asyncio.Lock()
        async with self._catching_up:
            try:
                await self._catch_up(log)
            except StateFileError as error:
                self._start_over(f"{brief(error)} It is discarded; the events are folded again.")
                await self._catch_up(log)

    async def rebuild(self, log: EventLog) -> None:
        """Discard the file and fold everything again. Raises as `catch_up`."""
        self._discard()
        await self.catch_up(log)

    def wipe(self) -> None:
        """Remove all facts from the file, and their bytes; the next `catch_up` folds the events again.

        Other processes may have the file open: they see that it is empty. An index is made anew, too.

        Raises:
            ProjectionError: the file cannot be written, or another process reads it right now.
        """

        def change(db: sqlite3.Connection, tick: int) -> None:
            for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                if table != "about":
                    db.execute(f"DELETE FROM {table}")
            db.execute("UPDATE about SET id = lower(hex(randomblob(16)))")

        with self._lock, Translating(self.path):
            self._opened().execute("PRAGMA secure_delete = ON").fetchone()
            self.change(change)
            db = self._opened()
            db.execute("VACUUM")
            (busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise StateBusyError(f"{self.path} is being read by another process.", hint="Try it again.")

    def identity(self) -> str:
        """A text that another file, or this one after it was discarded, does not have."""
        with self.reading() as db:
            found: str = db.execute("SELECT id FROM about").fetchone()[0]
            return found

    def refused(self) -> list[tuple[str, int, int, str]]:
        """The records that could not be decoded: topic, partition, offset, reason."""
        with self.reading() as db:
            return db.execute("SELECT * FROM refused ORDER BY 1, 2, 3").fetchall()

    def facts(self, where: str, values: Mapping[str, Any] | Sequence[Any] = ()) -> list[Fact]:
        """The facts of a query: what follows `FROM fact`."""
        with self.reading() as db:
            return [fact_of(row) for row in db.execute(f"SELECT {COLUMNS} FROM fact {where}", values)]

    async def _catch_up(self, log: EventLog) -> None:
        layout = await log.layout()
        known = self._topics()
        if known and known.isdisjoint(layout):
            self._start_over(f"{self.path} is the memory of a log that was here before: it is discarded.")
        facts = log.topology.events(FACTS)
        for topic, shape in sorted(layout.items()):
            if topic == facts or log.topology.kind(topic) is TopicKind.JOURNAL:
                await self._catch_up_topic(log, topic, shape.topic_id)

    async def _catch_up_topic(self, log: EventLog, topic: str, topic_id: str) -> None:
        until = await log.end(topic)
        cursors = self._cursors(topic, topic_id, until)
        if cursors is None:
            self._start_over(f"{self.path} is the memory of another log: the events are folded again.")
            await self._catch_up(log)
            return
        looked = self._looked.get((self.identity(), topic, topic_id), {})
        behind = {partition: max(cursors.get(partition, 0), looked.get(partition, 0)) for partition in until}
        behind = {partition: at for partition, at in behind.items() if at < until[partition]}
        if not behind:
            return
        first = await log.beginning(topic)
        for partition, at in behind.items():
            if partition in cursors and at < first.get(partition, 0):
                raise LogTruncatedError(topic, partition, at, first[partition])
        starts = {partition: max(at, first.get(partition, 0)) for partition, at in behind.items()}
        ends = {partition: until[partition] for partition in starts}
        has_facts = False
        async for batch in log.read_batches(topic, starts, until=ends, types=TYPES, partitions=list(starts)):
            has_facts = True
            await asyncio.to_thread(self._take, topic, topic_id, list(batch))
        # A conversation looks things up in each turn: most of its records say nothing to memory.
        if has_facts or any(end - cursors.get(partition, 0) >= _ADVANCE for partition, end in ends.items()):
            await asyncio.to_thread(self._advance, topic, topic_id, ends)
        else:
            self._looked[self.identity(), topic, topic_id] = {**looked, **ends}

    def _topics(self) -> set[str]:
        """The topics that were folded."""
        with self.reading() as db:
            return {topic for (topic,) in db.execute("SELECT DISTINCT topic FROM cursor")}

    def _cursors(self, topic: str, topic_id: str, until: Mapping[int, int]) -> dict[int, int] | None:
        """The next offset of each partition; None: the file is of another log."""
        with self.reading() as db:
            rows = db.execute("SELECT partition, topic_id, next FROM cursor WHERE topic = ?", (topic,))
            found = {}
            for partition, known_id, following in rows:
                if known_id != topic_id or following > until.get(partition, -1):
                    return None
                found[partition] = following
            return found

    def _take(self, topic: str, topic_id: str, records: Sequence[Record]) -> None:
        """Fold records, and move the cursors behind them, in one transaction."""
        told = [_read(record) for record in records]
        ends: dict[int, int] = {}
        for record in records:
            ends[record.partition] = record.offset + 1

        def change(db: sqlite3.Connection, tick: int) -> None:
            fold = MemoryFold(db, tick)
            for record, one in zip(records, told, strict=True):
                if isinstance(one, str):
                    row = (topic, record.partition, record.offset, one)
                    db.execute("INSERT OR IGNORE INTO refused VALUES (?, ?, ?, ?)", row)
                elif not (one is None or (isinstance(one, Fact) and one.scope.startswith(RUN))):
                    fold.apply(one)  # a run's working memory is its own
            _move(db, topic, topic_id, ends)

        self.change(change)

    def _advance(self, topic: str, topic_id: str, ends: Mapping[int, int]) -> None:
        self.change(lambda db, tick: _move(db, topic, topic_id, ends))

    def change(self, change: Callable[[sqlite3.Connection, int], None]) -> None:
        """Change the file in one transaction; `change` gets the connection, and the number of the commit.

        Raises:
            ProjectionError: the file cannot be written.
        """
        with self._lock, Translating(self.path):
            db = self._opened()
            db.execute("BEGIN IMMEDIATE")
            try:
                (tick,) = db.execute("UPDATE about SET tick = tick + 1 RETURNING tick").fetchone()
                change(db, tick)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._db is None:
            make_folder(self.path.parent)
            self._hold()
            self._db = self._connected() or self._replaced()
        return self._db

    def _connected(self) -> sqlite3.Connection | None:
        """A connection to a file of this version, which may be new; None: the file has another one."""
        db = connect(self.path)
        try:
            db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}").fetchone()
            db.execute("BEGIN IMMEDIATE")
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                for statement in (*_META.split(";\n"), *SCHEMA.split(";\n")):
                    db.execute(statement)
                db.execute("INSERT INTO about VALUES (?, 0, lower(hex(randomblob(16))))", (VERSION,))
            version = db.execute("SELECT version FROM about").fetchone()
            db.execute("COMMIT")
            keep_order(db)
        except sqlite3.DatabaseError:
            db.close()
            raise
        if version == (VERSION,):
            return db
        db.close()
        return None

    def _replaced(self) -> sqlite3.Connection:
        self._report(f"{self.path} has another version: the events are folded again.")
        discard(self.path)
        db = self._connected()
        assert db is not None, "a new file has this version"
        return db

    def _start_over(self, said: str) -> None:
        self._report(said)
        self._discard()

    def _discard(self) -> None:
        with self._lock:
            self.close()
            discard(self.path)


def _read(record: Record) -> Fact | Retraction | str | None:
    """What a record says; a text: why it cannot be read; None: it is a copy, or about something else."""
    try:
        if record.header(ORIGIN) is not None or record.newest.event_type not in TYPES:
            return None
        if is_erased(record.envelope):
            return None
        return told_by(record.newest, None if record.header(SEQUENCE) is None else record.key)
    except EventError as error:
        if isinstance(getattr(error, "cause", None), SubjectKeyError):
            raise  # whoever has the key can read it: to pass it over would be to forget it here alone
        return brief(error)


def _move(db: sqlite3.Connection, topic: str, topic_id: str, ends: Mapping[int, int]) -> None:
    for partition, following in ends.items():
        db.execute(
            "INSERT INTO cursor VALUES (?, ?, ?, ?) ON CONFLICT (topic, partition)"
            " DO UPDATE SET next = max(next, excluded.next)",
            (topic, partition, topic_id, following),
        )
