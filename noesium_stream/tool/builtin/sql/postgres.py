"""A Postgres server as a database of the toolkit `sql`; needs psycopg.

Each call has a connection of its own, in a transaction that only reads unless the call may write. A statement
is prepared by SQL's PREPARE, whose grammar takes one SELECT, INSERT, UPDATE, DELETE, MERGE or VALUES and
nothing else. The tables that this locks are those that it names, also through views and rules; those that are
locked when it has ended include what functions, triggers and foreign keys have touched. Nothing is given, and
nothing committed, unless all of them are granted.

Use a role that has no more rights than the agents need: walls of the server itself are the last ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, generators
from psycopg.rows import tuple_row

from noesium_stream.errors import (
    NoesiumError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolInputError,
    ToolServerError,
)
from noesium_stream.escapes import escaped
from noesium_stream.tool.builtin.sql.config import SqlConfig
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
    Value,
    table_name,
)
from noesium_stream.tool.builtin.sql.postgres_text import (
    COLUMNS,
    EFFECTS,
    LOCKS,
    TABLES,
    called,
    wrapped,
)
from noesium_stream.tool.builtin.sql.sqlite_guard import shown

CONNECT_S: Final = 5
LOCK_S: Final = 5
_MAX_MESSAGE: Final = 500
_PREPARED: Final = b"statement"

Connection = AsyncConnection[tuple[Any, ...]]


class PostgresDatabase:
    """The tables of one database of a Postgres server.

    Args:
        config: the settings of the toolkit; the connection string is read for each call.
    """

    def __init__(self, config: SqlConfig) -> None:
        self._config = config
        self._limits = config.limits

    async def tables(self) -> list[Table]:
        """See `Database.tables`."""
        async with self._connected() as connection, self._told():
            rows = await _fetch(connection, TABLES, self._config.keys_table, self._config.schema_name)
        names = [(self._name(schema, name), kind) for schema, name, kind in rows]
        return [{"name": name, "kind": kind} for name, kind in sorted(names)[:MAX_TABLES]]

    async def columns(self, table: str) -> list[Column]:
        """See `Database.columns`."""
        async with self._connected() as connection, self._told():
            rows = await _fetch(connection, TABLES, None, None)
            found = [(schema, name) for schema, name, _ in rows if self._name(schema, name) == table]
            columns = await _fetch(connection, COLUMNS, *found[0]) if found else []
        return [
            {"name": name, "type": kind, "nullable": nullable, "key": key}
            for name, kind, nullable, key in columns
        ]

    async def touched(self, statement: Statement) -> Touched:
        """See `Database.touched`."""
        async with self._connected() as connection, self._told():
            return (await self._prepared(connection, statement))[0]

    async def query(self, statement: Statement, check: Check) -> Rows:
        """See `Database.query`."""
        found = await self._performed(statement, check, None)
        return {"columns": found["columns"], "rows": found["rows"], "truncated": found["truncated"]}

    async def execute(self, statement: Statement, check: Check, call_id: str | None) -> Changed:
        """See `Database.execute`."""
        return await self._performed(statement, check, call_id)

    async def _performed(self, statement: Statement, check: Check, call_id: str | None) -> Changed:
        async with self._connected() as connection:
            async with self._told(ran=True):
                result = await self._in_transaction(connection, statement, check, call_id)
            if statement.writes:
                await _commit(connection, repeatable=call_id is not None)
        return result

    async def _in_transaction(
        self, connection: Connection, statement: Statement, check: Check, call_id: str | None
    ) -> Changed:
        # 1. Which tables it names, before anything of it is executed.
        named, columns = await self._prepared(connection, statement)
        check(named)
        # 2. Its key; an equal call waits here for the end of this one, and finds its result.
        known = None if call_id is None else await self._known(connection, call_id)
        if known is not None:
            return known
        # 3. The statement, and what is deferred to the end of a transaction.
        result = await self._rows(connection, statement, columns)
        if statement.writes:
            await _run(connection, "SET CONSTRAINTS ALL IMMEDIATE")
        # 4. Which tables it has touched after all.
        check(await self._locked(connection, without=None if call_id is None else self._config.keys_table))
        # 5. The result beside its key, in the same transaction.
        if call_id is not None:
            text = orjson.dumps(result).decode()
            await _run(connection, f"UPDATE {self._keys} SET result = $2 WHERE call_id = $1", call_id, text)
        return result

    async def _prepared(
        self, connection: Connection, statement: Statement
    ) -> tuple[Touched, list[tuple[str, int]]]:
        """The tables that a statement names, and its columns: names and the numbers of their types."""
        sql = statement.sql.rstrip().rstrip(";")
        effects = called(sql, [name for (name,) in await _fetch(connection, EFFECTS, sql)])
        forbidden = sorted(effects - set(self._config.functions))
        if forbidden:
            raise ToolInputError(
                f"The statement is refused: the function {escaped(forbidden[0])} is not allowed."
            )
        await _run(connection, "BEGIN READ WRITE" if statement.writes else "BEGIN READ ONLY")
        await _run(connection, f"PREPARE {_PREPARED.decode()} AS {sql}")
        touched = await self._locked(connection)
        if self._config.keys_table is not None and self._name(
            self._config.schema_name, self._config.keys_table
        ) in (touched.reads | touched.writes):
            raise ToolInputError("The table of the keys of calls is not for statements.")
        if statement.writes != bool(touched.writes):
            problem = "it changes no table" if statement.writes else "it changes the database"
            raise ToolInputError(f"The statement is refused: {problem}.")
        connection.pgconn.send_describe_prepared(_PREPARED)
        (described,) = await connection.wait(generators.execute(connection.pgconn))
        if described.nparams != len(statement.parameters):
            raise ToolInputError(
                f"The statement has {described.nparams} parameters, and {len(statement.parameters)} values."
            )
        if not described.nfields and not statement.writes:
            raise ToolInputError("The statement is refused: it has no columns.")
        names = [(described.fname(at) or b"", described.ftype(at)) for at in range(described.nfields)]
        return touched, [(name.decode("utf-8", "replace"), kind) for name, kind in names]

    async def _rows(
        self, connection: Connection, statement: Statement, columns: Sequence[tuple[str, int]]
    ) -> Changed:
        limits, sql = self._limits, statement.sql.rstrip().rstrip(";")
        values = [_bound(value) for value in statement.parameters]
        if not columns:
            changed = await _run(connection, sql, *values)
            return {"columns": [], "rows": [], "truncated": False, "changed": changed}
        found = _Found(limits)
        types = [kind for _, kind in columns]
        query = wrapped(sql, types, limits.rows + 1, limits.cell + 1, counted=statement.writes)
        async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
            async for row in cursor.stream(query, values):
                found.take(row)
        names = [name[: limits.cell] for name, _ in columns]
        return {
            "columns": names,
            "rows": found.rows,
            "truncated": found.truncated,
            "changed": found.changed if statement.writes else 0,
        }

    async def _locked(self, connection: Connection, without: str | None = None) -> Touched:
        reads, writes = set[str](), set[str]()
        for schema, name, kind, mode in await _fetch(connection, LOCKS):
            if kind in ("index", "toast table") or (kind == "sequence" and mode != "AccessShareLock"):
                continue
            if (schema, name) == (self._config.schema_name, without):
                continue
            # A row lock is what a foreign key takes; `FOR UPDATE` needs a transaction that may write.
            reading = mode in ("AccessShareLock", "RowShareLock")
            (reads if reading else writes).add(self._name(schema, name))
        return Touched(frozenset(reads), frozenset(writes))

    async def _known(self, connection: Connection, call_id: str) -> Changed | None:
        """The result of a call that was committed; None: it is to be made, and has its key now."""
        added = f"INSERT INTO {self._keys} (call_id, result) VALUES ($1, '') ON CONFLICT DO NOTHING"
        if await _run(connection, added, call_id):
            return None
        ((text,),) = await _fetch(connection, f"SELECT result FROM {self._keys} WHERE call_id = $1", call_id)
        known: Changed = orjson.loads(text)
        return known

    @property
    def _keys(self) -> str:
        return f'"{self._config.schema_name}"."{self._config.keys_table}"'

    def _name(self, schema: str | None, name: str) -> str:
        if schema is None or schema == self._config.schema_name:
            return table_name(name)
        return table_name(schema, name)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        """A connection for one call; what is not committed at its end is undone.

        Raises:
            ToolServerError: the server does not answer.
        """
        try:
            connection = await AsyncConnection.connect(
                self._config.dsn, autocommit=True, connect_timeout=CONNECT_S, prepare_threshold=None
            )
            await _run(connection, "SELECT " + ", ".join(self._settings()))
        except psycopg.Error as error:
            raise ToolServerError(
                f"The database of {self._config.dsn_env} does not answer: {type(error).__name__}."
            ) from None
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def _told(self, *, ran: bool = False) -> AsyncIterator[None]:
        """Bound the time, and tell errors of Postgres as those of a tool; `ran`: a statement is executed."""
        limit_s = self._limits.time_s + LOCK_S
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError:
            raise _late(limit_s, ran=ran) from None
        except psycopg.Error as error:
            raise _error(error, self._limits.time_s, ran=ran) from None

    def _settings(self) -> list[str]:
        settings = {
            "statement_timeout": f"{self._limits.time_s:g}s",
            "lock_timeout": f"{LOCK_S}s",
            "idle_in_transaction_session_timeout": f"{self._limits.time_s + LOCK_S:g}s",
            "default_transaction_read_only": "on",
            "standard_conforming_strings": "on",
            "client_encoding": "UTF8",
            "jit": "off",
            "search_path": f'"{self._config.schema_name}"',
            "application_name": "noesium-stream",
        }
        return [f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in settings.items()]


@dataclass(slots=True)
class _Found:
    """The rows of a result as far as the limits allow; each row has the number of all before its values."""

    limits: Limits
    rows: list[list[Any]] = field(default_factory=list)
    truncated: bool = False
    changed: int = 0
    _size: int = 0

    def take(self, row: Sequence[Any]) -> None:
        """Take the next row, or drop it."""
        self.changed = int(row[0])
        cells = [shown(value, self.limits.cell) for value in row[1:]]
        values = [value for value, _ in cells]
        self._size += len(orjson.dumps(values))
        if len(self.rows) >= self.limits.rows or self._size > self.limits.bytes:
            self.truncated = True
            return
        self.truncated = self.truncated or any(cut for _, cut in cells)
        self.rows.append(values)


def _bound(value: Value) -> str | None:
    """A value as the text of which Postgres makes the type that the statement needs there."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _run(connection: Connection, sql: str, *values: str | None) -> int:
    """Execute one statement, and count the rows that it has changed.

    Binary results are asked for because that takes the extended protocol, in which a text is one statement.
    """
    async with AsyncRawCursor(connection) as cursor:
        await cursor.execute(sql, values, binary=True)
        return cursor.rowcount


async def _fetch(connection: Connection, sql: str, *values: str | None) -> list[tuple[Any, ...]]:
    async with AsyncRawCursor(connection, row_factory=tuple_row) as cursor:
        await cursor.execute(sql, values)
        return await cursor.fetchall()


async def _commit(connection: Connection, *, repeatable: bool) -> None:
    try:
        await _run(connection, "COMMIT")
    except psycopg.Error as error:
        if connection.broken and repeatable:
            raise ToolServerError("The database was lost while a change was committed.") from None
        if connection.broken:
            raise OutcomeUnknownError("the database was lost while the change was committed") from None
        raise _error(error, 0, ran=True) from None


def _error(error: psycopg.Error, time_s: float, *, ran: bool) -> NoesiumError:
    state = error.sqlstate or ""
    said = error.diag.message_primary or str(error).partition("\n")[0]
    text = escaped(said)[:_MAX_MESSAGE].rstrip(".")
    if state == "57014":
        return _late(time_s, ran=ran)
    if state == "55P03" or state[:2] in ("08", "40", "53", "57", "58") or (not state and ran):
        return ToolServerError(f"Postgres: {text}.")
    return (ToolExecutionError if ran else ToolInputError)(f"Postgres: {text}.")


def _late(time_s: float, *, ran: bool) -> NoesiumError:
    if ran:
        return ToolExecutionError(f"The statement did not end in {time_s:g} s, and was undone.")
    return ToolServerError(f"The database did not answer in {time_s:g} s.")
