"""A database as the toolkit `sql` uses it: which tables a statement touches, and what it gives.

Decision record: which tables a statement touches is said by the database itself, never by a reading of the
statement's text here. SQLite calls an authorizer for each table while it compiles a statement; Postgres locks
each table while it parses and rewrites one, and shows its locks. Both see through views, triggers, rules and
foreign keys. They say so before the call, for the executor's judgement, and again with the statement that is
executed, so that a schema that changes in between gives nothing away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from typing_extensions import TypedDict

from noesium_stream.errors import ToolPermissionError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.trust.permission import uncovered

MAX_TABLES: Final = 1_000
"""Tables that one listing shows."""

_PLAIN: Final = re.compile(r"[\w$]+")
_SHOWN: Final = 3

Value = str | int | float | bool | None
"""A value that is bound to a parameter of a statement."""


class Table(TypedDict):
    """A table or a view."""

    name: str
    kind: str


class Column(TypedDict):
    """A column. `type`: as the database has it; `key`: its place in the primary key, from 1; 0: none."""

    name: str
    type: str
    nullable: bool
    key: int


class Rows(TypedDict):
    """What a statement gives. `truncated`: there are more rows, or longer values, than the limits."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


class Changed(Rows):
    """What a statement that changes a table gives. `changed`: how many rows it has changed."""

    changed: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one statement.

    Attributes:
        rows: rows of a result.
        cell: characters of a value.
        bytes: of a result, as JSON.
        time_s: seconds until it is stopped.
        memory_bytes: memory of the process that executes it (SQLite).
    """

    rows: int
    cell: int
    bytes: int
    time_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of SQL, and the values of its parameters."""

    sql: str
    parameters: Sequence[Value] = ()
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Touched:
    """The tables that a statement reads and changes, by the names that permissions have."""

    reads: frozenset[str]
    writes: frozenset[str]

    def needs(self, prefix: str) -> tuple[str, ...]:
        """The permissions that it needs, sorted. To change a table includes to read it."""
        reads = sorted(f"sql:read:{prefix}{table}" for table in self.reads - self.writes)
        return (*reads, *sorted(f"sql:write:{prefix}{table}" for table in self.writes))


Check = Callable[[Touched], None]
"""Raises `ToolPermissionError` if a statement may not touch these tables."""


class Database(Protocol):
    """A database. All methods raise as follows.

    Raises:
        ToolInputError: the statement is not valid, or of another kind than is allowed.
        ToolExecutionError: it failed.
        ToolServerError: the database does not answer.
    """

    async def tables(self) -> list[Table]:
        """Its tables and views, sorted by name."""

    async def columns(self, table: str) -> list[Column]:
        """The columns of a table, in order; empty: there is no such table."""

    async def touched(self, statement: Statement) -> Touched:
        """The tables that a statement touches; it is not executed."""

    async def query(self, statement: Statement, check: Check) -> Rows:
        """Execute a statement that only reads."""

    async def execute(self, statement: Statement, check: Check, call_id: str | None) -> Changed:
        """Execute a statement that changes tables.

        Args:
            statement: the statement.
            check: judges the tables that it touches before the change is committed.
            call_id: the key of the call: a statement that was executed under it is not executed again, and
                gives what it gave. None: there is no table of keys.

        Raises:
            OutcomeUnknownError: nobody knows whether it was committed.
        """


def table_name(*parts: str) -> str:
    """The name of a table in permissions: parts are quoted where a name is no plain word."""
    return ".".join(part if _PLAIN.fullmatch(part) else '"' + part.replace('"', '""') + '"' for part in parts)


def require(granted: Iterable[str], prefix: str, touched: Touched) -> None:
    """Check that all tables that a statement touches are granted.

    Raises:
        ToolPermissionError: names the first that are not.
    """
    missing = uncovered(tuple(granted), touched.needs(prefix))
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise ToolPermissionError(
            f"The statement needs {', '.join(short(one) for one in missing[:_SHOWN])}{more}, which the call "
            "was not granted.",
            hint="See `noesium guide builtin`.",
        )
