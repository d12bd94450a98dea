"""The toolkit `sql` as an executor calls it: needs that are found, checked arguments and results."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.tool.builtin.sql.toolkit import SqlToolkit
from noesium_stream.tool.context import ToolContext

EVERYTHING = ("sql:read", "sql:write")


def tool_of(toolkit: SqlToolkit, name: str) -> AtomicTool:
    """A tool of the toolkit, by the end of its name."""
    return next(one for one in toolkit.tools() if one.name == f"{toolkit.config.name}_{name}")


def context(granted: Sequence[str] = EVERYTHING, call_id: str | None = None) -> ToolContext:
    """The context of a call with these permissions."""
    return ToolContext("clerk", Path("/nowhere"), tuple(granted), call_id=call_id)


async def needs(toolkit: SqlToolkit, sql: str, *parameters: Any, tool: str = "query") -> list[str]:
    """What a statement needs; nothing is executed."""
    finder = tool_of(toolkit, tool).find_needs
    assert finder is not None
    return list(await finder({"sql": sql, "parameters": list(parameters)}, context()))


async def call(
    toolkit: SqlToolkit,
    name: str,
    granted: Sequence[str] = EVERYTHING,
    call_id: str | None = None,
    **arguments: Any,
) -> Any:
    """Call a tool past the executor's judgement: what it refuses now, it refuses by itself."""
    tool = tool_of(toolkit, name)
    tool.check_input(arguments)
    result = await tool.execute(arguments, context(granted, call_id))
    tool.check_output(result)
    return result


async def query(
    toolkit: SqlToolkit, sql: str, *parameters: Any, granted: Sequence[str] = EVERYTHING
) -> list[list[Any]]:
    """The rows of a query."""
    rows: list[list[Any]] = (await call(toolkit, "query", granted, sql=sql, parameters=list(parameters)))[
        "rows"
    ]
    return rows


def shop(folder: Path) -> Path:
    """An SQLite file with tables of a shop."""
    path = folder / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
            CREATE TABLE orders (
                id INTEGER PRIMARY KEY AUTOINCREMENT, item TEXT, cents INT,
                customer INT REFERENCES customers(id)
            );
            CREATE TABLE secrets (word TEXT);
            CREATE TABLE journal (line TEXT);
            CREATE TABLE calls (call_id TEXT PRIMARY KEY, result TEXT);
            CREATE VIEW cheap AS SELECT id, item FROM orders WHERE cents < 500;
            CREATE VIEW words AS SELECT word FROM secrets;
            CREATE VIRTUAL TABLE notes USING fts5 (body);
            CREATE TRIGGER noted AFTER UPDATE ON orders BEGIN INSERT INTO journal VALUES (new.item); END;
            INSERT INTO customers VALUES (1, 'Ada');
            INSERT INTO orders (item, cents, customer) VALUES ('tea', 300, 1), ('oil', 900, 1);
            INSERT INTO secrets VALUES ('xyzzy');
            INSERT INTO notes VALUES ('tea is green'), ('oil is yellow');
            """
        )
    connection.close()
    return path


def content(path: Path, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table of an SQLite file."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
    finally:
        connection.close()
