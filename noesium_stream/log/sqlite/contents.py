"""What the blocks of a SQLite log hold, decompressed; for a search of the file, which cannot read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from noesium_stream.errors import LogUnavailableError
from noesium_stream.log.sqlite.block import is_block, unpack_block
from noesium_stream.log.sqlite.chunk import ChunkDamagedError
from noesium_stream.log.sqlite.file import corrupt, translate
from noesium_stream.log.sqlite.read import statements

_PATIENCE_S: Final = 5.0


def contents_of_blocks(path: Path) -> Iterator[bytes]:
    """The chunks in blocks of all topics of all namespaces, one by one.

    Raises:
        LogCorruptError: a block is damaged.
        LogUnavailableError: the file cannot be read.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)) as connection:
            for slot, partitions in connection.execute("SELECT slot, partitions FROM topic").fetchall():
                for number in range(slot, slot + partitions):
                    for start, _, _, data in connection.execute(statements(number).fetch, (0,)):
                        if is_block(data):
                            yield from _contents(path, f"chunk_{number} at {start}", data)
    except sqlite3.Error as error:
        raise translate(path, error) from error


def empty_write_ahead_log(path: Path) -> None:
    """Move all commits into the file, so that the `-wal` file has no pages any more, not even old ones.

    Raises:
        LogUnavailableError: other processes read or write all the time.
    """
    try:
        with closing(sqlite3.connect(path, timeout=_PATIENCE_S, isolation_level=None)) as connection:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        raise translate(path, error) from error
    if busy:
        raise LogUnavailableError(
            f"{path}-wal is in use: it may have pages with what was removed from the log.",
            hint="Repeat it when fewer processes use the log.",
        )


def _contents(path: Path, place: str, data: bytes) -> Iterator[bytes]:
    try:
        for part in unpack_block(data):
            yield part.body
    except ChunkDamagedError as error:
        raise corrupt(path, f"the records of {place} are damaged") from error
