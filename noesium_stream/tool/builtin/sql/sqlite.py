"""SQLite files as a database of the toolkit `sql`.

A statement is compiled in a thread of this process, which reads no row, and executed in a process of its own
(`sqlite_guard.py`), with exactly the tables that were found then.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any, Final

from noesium_stream.errors import (
    NoesiumError,
    OutcomeUnknownError,
    ToolError,
    ToolExecutionError,
    ToolInputError,
    ToolServerError,
)
from noesium_stream.escapes import escaped
from noesium_stream.tool.builtin.sql import sqlite_guard
from noesium_stream.tool.builtin.sql.database import (
    MAX_TABLES,
    Changed,
    Check,
    Column,
    Limits,
    Rows,
    Statement,
    Table,
    Touched,
    table_name,
)

_GRACE_S: Final = sqlite_guard.BUSY_S + 3.0
"""How long the process has beyond the time of its statement: to start, to wait for a lock, to commit."""
_MAX_MESSAGE: Final = 500


class SqliteDatabase:
    """One SQLite file.

    Args:
        path: the file.
        limits: of each statement.
        keys_table: the table of the keys of calls; None: there is none.
    """

    def __init__(self, path: Path, limits: Limits, keys_table: str | None = None) -> None:
        self._path = str(path)
        self._limits = limits
        self._keys = keys_table

    async def tables(self) -> list[Table]:
        """See `Database.tables`."""
        return await asyncio.to_thread(self._tables)

    async def columns(self, table: str) -> list[Column]:
        """See `Database.columns`."""
        return await asyncio.to_thread(self._columns, table)

    async def touched(self, statement: Statement) -> Touched:
        """See `Database.touched`."""
        return await asyncio.to_thread(self._touched, statement)

    async def query(self, statement: Statement, check: Check) -> Rows:
        """See `Database.query`."""
        found = await self._perform(statement, check, None)
        return {"columns": found["columns"], "rows": found["rows"], "truncated": found["truncated"]}

    async def execute(self, statement: Statement, check: Check, call_id: str | None) -> Changed:
        """See `Database.execute`."""
        found: Changed = await self._perform(statement, check, call_id)
        return found

    def _tables(self) -> list[Table]:
        with _told(), sqlite_guard.guarded(self._path, writes=False) as connection:
            rows = connection.execute("PRAGMA main.table_list").fetchall()
        names = sorted(
            (str(name), "view" if kind == "view" else "table")
            for _, name, kind, *_ in rows
            if kind != "shadow" and not name.startswith("sqlite_") and name != self._keys
        )
        return [{"name": table_name(name), "kind": kind} for name, kind in names[:MAX_TABLES]]

    def _columns(self, table: str) -> list[Column]:
        with _told(), sqlite_guard.guarded(self._path, writes=False) as connection:
            names = [str(row[1]) for row in connection.execute("PRAGMA main.table_list")]
            name = next((one for one in names if table_name(one) == table), None)
            rows = [] if name is None else connection.execute(_info(name)).fetchall()
        return [
            {"name": str(row[1]), "type": str(row[2]), "nullable": not row[3], "key": int(row[5])}
            for row in rows
        ]

    def _touched(self, statement: Statement) -> Touched:
        return Touched(*(frozenset(map(table_name, names)) for names in self._compiled(statement)))

    def _compiled(self, statement: Statement) -> tuple[set[str], set[str]]:
        with _told(), sqlite_guard.guarded(self._path, writes=False) as connection:
            reads, writes = sqlite_guard.compiled(
                connection, statement.sql, statement.parameters, writes=statement.writes
            )
        if self._keys is not None and self._keys.lower() in {name.lower() for name in reads | writes}:
            raise ToolInputError("The table of the keys of calls is not for statements.")
        return reads, writes

    async def _perform(self, statement: Statement, check: Check, call_id: str | None) -> Any:
        reads, writes = await asyncio.to_thread(self._compiled, statement)
        check(Touched(*(frozenset(map(table_name, names)) for names in (reads, writes))))
        limits = self._limits
        request = {
            "path": self._path,
            "sql": statement.sql,
            "parameters": list(statement.parameters),
            "writes": statement.writes,
            # what is changed can be read; triggers and keys that compare it are no more than that
            "may_read": sorted(reads | writes),
            "may_write": sorted(writes),
            "rows": limits.rows,
            "cell": limits.cell,
            "bytes": limits.bytes,
            "time_s": limits.time_s,
            "memory_bytes": limits.memory_bytes,
            "call_id": call_id,
            "keys": self._keys if call_id is not None else None,
        }
        perhaps = statement.writes and call_id is None
        return _result(await _served(request, limits.time_s, perhaps=perhaps), limits, perhaps=perhaps)


class _told:
    """Tell errors of SQLite as those of a tool."""

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, sqlite_guard.Refused):
            raise _error("refused", str(error)) from None
        if isinstance(error, sqlite3.Error | sqlite3.Warning | OverflowError | UnicodeError):
            raise _error(sqlite_guard.kind_of(error), str(error)) from None


def _info(table: str) -> str:
    return 'PRAGMA main.table_info("' + table.replace('"', '""') + '")'


async def _served(request: dict[str, Any], time_s: float, *, perhaps: bool) -> bytes:
    """Have a process of its own serve a request; its answer, empty if it has died.

    Raises:
        NoesiumError: it did not end in time.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", sqlite_guard.__file__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ},
    )
    try:
        async with asyncio.timeout(time_s + _GRACE_S):
            out, _ = await process.communicate(json.dumps(request).encode())
    except TimeoutError:
        raise _lost(f"it did not end in {time_s:g} s", perhaps=perhaps) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return out


def _result(out: bytes, limits: Limits, *, perhaps: bool) -> Any:
    try:
        answer = json.loads(out)
    except ValueError:
        raise _lost("it broke its process", perhaps=perhaps) from None
    kind = answer.get("kind")
    if kind == "time":
        raise ToolExecutionError(f"The statement did not end in {limits.time_s:g} s, and was undone.")
    if kind is not None:
        raise _error(kind, str(answer.get("problem", "")), ran=True)
    return answer


def _lost(why: str, *, perhaps: bool) -> NoesiumError:
    """The error about a process that gave no answer; `perhaps`: it may have committed."""
    if perhaps:
        return OutcomeUnknownError(f"{why}; nobody knows whether the change was committed")
    return ToolExecutionError(f"The statement failed: {why}.")


def _error(kind: str, problem: str, *, ran: bool = False) -> ToolError:
    text = escaped(problem)[:_MAX_MESSAGE].rstrip(".")
    if kind == "server":
        return ToolServerError(f"The SQLite file cannot be used: {text}.")
    if kind == "memory":
        return ToolExecutionError("The statement needs too much memory.")
    if kind == "refused":
        return ToolInputError(f"The statement is refused: {text}.")
    return (ToolExecutionError if ran else ToolInputError)(f"SQLite: {text}.")
