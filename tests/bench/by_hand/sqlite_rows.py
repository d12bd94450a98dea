"""By hand: a log as a table in SQLite, a row per event.

Why it is fair: WAL and the same `synchronous`, the same bytes (key, headers, value), the smallest table that
can be read back in order, one statement per commit or `executemany` in a transaction, prepared statements by
the connection's own cache. It does less: no partitions, no checksum, no fencing, no other process told, no
position returned, and the append time is left out.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from noesium_stream.event.envelope import EventEnvelope
from tests.bench.by_hand.produce import encode, headers

Row = tuple[str, bytes, bytes]
_INSERT = "INSERT INTO log(key, headers, value) VALUES(?, ?, ?)"


def open_rows(path: Path, synchronous: str) -> sqlite3.Connection:
    """A new file with the table."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.execute("CREATE TABLE log(id INTEGER PRIMARY KEY, key TEXT, headers BLOB, value BLOB)")
    return connection


def row(event: EventEnvelope) -> Row:
    """An envelope encoded by hand."""
    lines = b"\n".join(value for _, value in headers(event)[1:])
    return event.partition_key or "", lines, encode(event)


def insert(connection: sqlite3.Connection, one: Row) -> None:
    """A commit of one event."""
    connection.execute(_INSERT, one)


def insert_many(connection: sqlite3.Connection, rows: Sequence[Row]) -> None:
    """A commit of many."""
    connection.execute("BEGIN")
    connection.executemany(_INSERT, rows)
    connection.execute("COMMIT")
