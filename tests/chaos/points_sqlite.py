"""The instants of a commit on SQLite: between its statements, and in the middle of what SQLite writes."""

from __future__ import annotations

import ctypes
import resource
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from noesium_stream.log.port import Outgoing
from noesium_stream.log.sqlite.store import SqliteStore
from noesium_stream.log.sqlite.writer import SqliteWriter

FRAME: Final = 4_120
"""Of a write-ahead log: a header of 24 bytes, and a page."""

_DOOMED: ContextVar[bool] = ContextVar("doomed", default=False)


class Striking(Protocol):
    """See `points.Strike`."""

    chance: Random

    def due(self) -> bool: ...

    def again(self) -> None: ...

    def here(self, what: str = "") -> None: ...


def arm_sqlite(strike: Striking, place: str, which: Callable[[Sequence[Outgoing]], bool]) -> None:
    """Let this process stand still at `place` of a commit that `which` picks."""
    commit, begun = SqliteWriter.commit, SqliteStore.__init__

    async def chosen(self: SqliteWriter, outgoing: Sequence[Outgoing]) -> Any:
        several = place != "after-first-produce" or len({one[1:3] for one in outgoing}) > 1
        doomed = _DOOMED.set(which(outgoing) and several and strike.due())
        try:
            return await commit(self, outgoing)
        finally:
            _DOOMED.reset(doomed)

    def opened(self: SqliteStore, path: Path, connection: Any, *arguments: Any) -> None:
        begun(self, path, connection, *arguments)
        self.connection = Connection(connection, path, strike, place)  # type: ignore[assignment]

    setattr(SqliteWriter, "commit", chosen)  # noqa: B010
    setattr(SqliteStore, "__init__", opened)  # noqa: B010


class Connection:
    """A log's connection, which stands still at one place of the commit that was chosen."""

    def __init__(self, inner: sqlite3.Connection, path: Path, strike: Striking, place: str) -> None:
        self._inner = inner
        self._wal = path.with_name(f"{path.name}-wal")
        self._strike = strike
        self._place = place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def execute(self, sql: str, *values: Any) -> Any:
        """See `sqlite3.Connection.execute`."""
        if not _DOOMED.get():
            return self._inner.execute(sql, *values)
        row = sql.startswith("INSERT INTO chunk")
        within = self._inner.in_transaction
        ends = sql == "COMMIT" or (row and not within)  # a lone row is a commit of its own
        if self._place == "before-begin" or (self._place == "before-commit" and ends):
            self._strike.here(_short(sql))
        if self._place == "during-commit" and ends:
            return self._torn(sql, *values)
        found = self._inner.execute(sql, *values)
        if (self._place == "after-first-produce" and row and within) or (
            self._place == "after-commit" and ends
        ):
            self._strike.here(_short(sql))
        return found

    def _torn(self, sql: str, *values: Any) -> Any:
        """Stand still within the write that would grow the write-ahead log beyond some byte of it.

        What lies before that byte is written. The kernel then signals the thread that writes, and its
        handler, which is no Python handler (those wait for the next bytecode), runs there and then.
        """
        size = self._wal.stat().st_size
        handler = _HANDLER(lambda number: self._strike.here(f"byte {limit - size} of {_short(sql)}"))
        limit = size + self._strike.chance.randrange(1, 2 * FRAME)
        _LIBC.signal(int(signal.SIGXFSZ), handler)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            return self._inner.execute(sql, *values)
        finally:
            # It has written less, or elsewhere in the file, which was begun anew.
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
            _LIBC.signal(int(signal.SIGXFSZ), ctypes.c_void_p(1))
            self._strike.again()


def _short(sql: str) -> str:
    return sql.partition("(")[0]


_HANDLER: Final = ctypes.CFUNCTYPE(None, ctypes.c_int)
_LIBC: Final = ctypes.CDLL(None)
_LIBC.signal.restype = ctypes.c_void_p
