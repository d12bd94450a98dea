"""A guarded connection to an SQLite file, and a program that executes one statement with it.

The program is a process of its own with little memory and time and no environment: a statement, or a damaged
file, that breaks SQLite breaks nothing else. It uses the standard library alone, so it starts fast. It reads
a request from standard input, a JSON object, and writes an answer:

    {path, sql, parameters, writes, may_read, may_write, call_id, keys,
     rows, cell, bytes, time_s, memory_bytes}
    {columns, rows, truncated, changed} or {problem, kind}

What a statement may do, it may by permission: the authorizer refuses all that is not allowed here.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final
from urllib.parse import quote

try:
    import resource
except ImportError:  # not a POSIX system
    resource = None  # type: ignore[assignment]

STEPS: Final = 10_000
"""Instructions of SQLite's machine between two looks at the clock."""
BUSY_S: Final = 5.0
LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,  # also what VACUUM INTO needs
    sqlite3.SQLITE_LIMIT_LENGTH: 16 * 1024 * 1024,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 200_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 2_000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 250_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1_000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 20,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_WRITING: Final = (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)
_HARMLESS: Final = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)
_DIRECT_ONLY: Final = 0x80000
_INNOCUOUS: Final = 0x200000
_OF_SEARCH: Final = ("match", "snippet", "highlight", "bm25", "offsets", "matchinfo")
_MODULES: Final = ("json_each", "json_tree")
"""Functions that give rows, and are no table of the file."""


class Refused(Exception):
    """A statement does what is not allowed; the message says what."""


class Guard:
    """The authorizer of one statement.

    Args:
        connection: that executes it, already in order (see `guarded`).
        writes: whether it may change tables.
        may_read, may_write: names of tables; None: it is asked which tables there are (`reads`, `writes`).
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        writes: bool,
        may_read: Collection[str] | None = None,
        may_write: Collection[str] | None = None,
    ) -> None:
        self._writes = writes
        self._may_read, self._may_write = may_read, may_write
        self._owners = _owners(connection)
        self._functions = {*_functions(connection), *_OF_SEARCH}
        self._modules = {str(row[0]).lower() for row in connection.execute("PRAGMA module_list")}
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.refused: str | None = None

    def __call__(
        self, action: int, first: str | None, second: str | None, schema: str | None, source: str | None
    ) -> int:
        """See SQLite's sqlite3_set_authorizer()."""
        problem = self._problem(action, first or "", second or "", schema)
        if problem is None:
            return sqlite3.SQLITE_OK
        self.refused = self.refused or problem
        return sqlite3.SQLITE_DENY

    def _problem(self, action: int, first: str, second: str, schema: str | None) -> str | None:
        if action in _HARMLESS or (action, first) == (sqlite3.SQLITE_PRAGMA, "data_version"):
            return None
        if action == sqlite3.SQLITE_FUNCTION:
            return None if second.lower() in self._functions else f"the function {second} is not allowed"
        if schema not in (None, "main"):
            return f"the schema {schema} is not allowed"
        if action == sqlite3.SQLITE_READ:
            return self._reading(first, second)
        if action in _WRITING and self._writes:
            return self._writing(first)
        return "it changes the database" if action in _WRITING else "this kind of statement is not allowed"

    def _reading(self, name: str, column: str) -> str | None:
        table = self._owners.get(name.lower())
        if table is None:
            if name.lower() in _MODULES or (not column and not self._is_module(name)):
                return None  # no table: a common table expression has its name, but no columns
            if not name.lower().startswith("sqlite_"):
                return f"{name} is no table"
            table = name
        self.reads.add(table)
        may = self._may_read
        return None if may is None or table in may else f"the table {table} was not to be read"

    def _writing(self, name: str) -> str | None:
        if name.lower().startswith("sqlite_"):
            return f"{name} is of SQLite itself"
        table = self._owners.get(name.lower(), name)
        self.writes.add(table)
        may = self._may_write
        return None if may is None or table in may else f"the table {table} was not to be changed"

    def _is_module(self, name: str) -> bool:
        lower = name.lower()
        return lower in self._modules or lower.startswith(("pragma_", "sqlite_"))


def _owners(connection: sqlite3.Connection) -> dict[str, str]:
    """Tables by their names in lower case; what a virtual table keeps its data in is that table."""
    rows = connection.execute("PRAGMA main.table_list").fetchall()
    found = {str(row[1]).lower(): str(row[1]) for row in rows if not str(row[1]).startswith("sqlite_")}
    virtual = sorted((str(row[1]) for row in rows if row[2] == "virtual"), key=len, reverse=True)
    for row in rows:
        if row[2] == "shadow":
            name = str(row[1]).lower()
            owner = next((one for one in virtual if name.startswith(f"{one.lower()}_")), None)
            found[name] = owner or str(row[1])
    return found


def _functions(connection: sqlite3.Connection) -> Iterator[str]:
    """The functions that SQLite itself has and that act on nothing but their arguments."""
    for name, is_built_in, _, _, _, flags in connection.execute("PRAGMA function_list"):
        if not flags & _DIRECT_ONLY and (is_built_in or flags & _INNOCUOUS):
            yield str(name).lower()


@contextmanager
def guarded(path: str, *, writes: bool) -> Iterator[sqlite3.Connection]:
    """Open a file that is there, in order, without an authorizer so far.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    mode = "rw" if writes else "ro"
    uri = f"file:{quote(path)}?mode={mode}"
    with closing(sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, uri=True)) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        for category, limit in LIMITS.items():
            connection.setlimit(category, limit)
        if sys.version_info >= (3, 12):
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {setting}")
        for setting in ("temp_store = MEMORY", f"query_only = {not writes:d}", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")
        _connect_virtual_tables(connection)
        yield connection


def _connect_virtual_tables(connection: sqlite3.Connection) -> None:
    """Have virtual tables connected now: SQLite asks its authorizer for more than a statement does then."""
    names = [row[1] for row in connection.execute("PRAGMA main.table_list") if row[2] == "virtual"]
    for name in (*names, *_MODULES):
        try:
            connection.execute('SELECT 1 FROM "' + str(name).replace('"', '""') + '" LIMIT 0')
        except sqlite3.Error:
            continue  # its module is not here: a statement that names it fails


def compiled(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[Any], *, writes: bool
) -> tuple[set[str], set[str]]:
    """The tables that a statement reads and changes; it is compiled, and not executed.

    Raises:
        Refused: it is of another kind than is allowed.
        sqlite3.Error, ValueError, OverflowError: it is not valid.
    """
    guard = Guard(connection, writes=writes)
    connection.set_authorizer(guard)
    try:
        listing = connection.execute(f"EXPLAIN {sql}", parameters)
        steps = {row[1] for row in listing}
    except sqlite3.DatabaseError:
        if guard.refused is not None:
            raise Refused(guard.refused) from None
        raise
    finally:
        connection.set_authorizer(None)
    if "Vacuum" in steps or listing.description[1][0] != "opcode":
        raise Refused("this kind of statement is not allowed")
    if writes and not guard.writes:
        raise Refused("it changes no table")
    return guard.reads, guard.writes


def performed(connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
    """Execute the statement of a request within its limits, in one transaction.

    Raises:
        Refused: it does what is not allowed.
        sqlite3.Error, ValueError, OverflowError: it is not valid, or failed.
    """
    writes, keys, call_id = request["writes"], request["keys"], request["call_id"]
    # 1. The transaction: of a statement that writes it has the file's lock, so that equal calls take turns.
    connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    try:
        # 2. What was executed under this key is not executed again.
        if keys is not None:
            known = connection.execute(
                f'SELECT result FROM "{keys}" WHERE call_id = ?', (call_id,)
            ).fetchone()
            if known is not None:
                result: dict[str, Any] = json.loads(known[0])
                return result
        # 3. The statement, and nothing else, under the authorizer and the clock.
        result = _under_guard(connection, request)
        # 4. Its key with its result, in the same transaction.
        if keys is not None:
            record = (call_id, json.dumps(result))
            connection.execute(f'INSERT INTO "{keys}" (call_id, result) VALUES (?, ?)', record)
        if writes:
            connection.execute("COMMIT")
        return result
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _under_guard(connection: sqlite3.Connection, request: dict[str, Any]) -> dict[str, Any]:
    writes = request["writes"]
    guard = Guard(connection, writes=writes, may_read=request["may_read"], may_write=request["may_write"])
    deadline = time.monotonic() + request["time_s"]
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
    connection.set_authorizer(guard)
    try:
        with closing(connection.execute(request["sql"], request["parameters"])) as cursor:
            result = _rows(cursor, request)
    except sqlite3.DatabaseError:
        if guard.refused is not None:
            raise Refused(guard.refused) from None
        if time.monotonic() > deadline:
            raise TimeoutError from None
        raise
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    if writes:
        result["changed"] = connection.execute("SELECT changes()").fetchone()[0]
    return result


def _rows(cursor: sqlite3.Cursor, request: dict[str, Any]) -> dict[str, Any]:
    columns = [shown(entry[0], request["cell"])[0] for entry in cursor.description or ()]
    rows: list[list[Any]] = []
    truncated, size = False, 0
    for row in cursor:
        cells = [shown(value, request["cell"]) for value in row]
        values = [value for value, _ in cells]
        size += len(json.dumps(values))
        if len(rows) >= request["rows"] or size > request["bytes"]:
            truncated = True
            break
        truncated = truncated or any(cut for _, cut in cells)
        rows.append(values)
    return {"columns": columns, "rows": rows, "truncated": truncated}


def shown(value: Any, limit: int) -> tuple[Any, bool]:
    """A value as JSON has it, and whether it was cut; bytes are `\\x` and hexadecimal digits."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value), False
    if isinstance(value, bytes):
        text = "\\x" + value[: limit // 2 + 1].hex()
        return text[:limit], len(value) * 2 + 2 > limit
    if isinstance(value, str):
        return value[:limit].replace("\0", "\N{REPLACEMENT CHARACTER}"), len(value) > limit
    return value, False


def answer_to(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request."""
    try:
        with guarded(request["path"], writes=request["writes"]) as connection:
            return performed(connection, request)
    except Refused as refused:
        return {"kind": "refused", "problem": str(refused)}
    except TimeoutError:
        return {"kind": "time", "problem": ""}
    except MemoryError:
        return {"kind": "memory", "problem": ""}
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        return {"kind": kind_of(error), "problem": str(error)[:2_000]}


def kind_of(error: Exception) -> str:
    """What kind of problem an error of SQLite is: `input`, `memory`, or `server`."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_NOMEM:
        return "memory"
    server = (
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR),
        *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FULL, sqlite3.SQLITE_PROTOCOL),
    )
    return "server" if code in server else "input"


def main() -> None:
    """Serve one request."""
    request = json.loads(sys.stdin.buffer.read())
    if resource is not None:
        memory, cpu_s = request["memory_bytes"], math.ceil(request["time_s"]) + 1
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(answer_to(request)))


if __name__ == "__main__":
    main()
