"""Statements that try to leave the tables of their SQLite file, or to take its machine's time and memory."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from noesium_stream.errors import ToolError, ToolExecutionError, ToolInputError
from noesium_stream.tool.builtin.sql import sqlite as module
from noesium_stream.tool.builtin.sql.toolkit import SqlToolkit
from tests.support.sql_tools import EVERYTHING, call, needs, query, shop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shop(tmp_path)


@pytest.fixture
def sql(path: Path) -> SqlToolkit:
    return SqlToolkit(path=path, writable=True, timeout_s=1)


@pytest.fixture(autouse=True)
def _unchanged(path: Path) -> Iterator[None]:
    before, names = path.read_bytes(), set(os.listdir(path.parent))
    yield
    assert path.read_bytes() == before
    assert set(os.listdir(path.parent)) == names


@pytest.mark.parametrize("tool", ["query", "execute"])
@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH '{folder}/other.db' AS other",
        "ATTACH 'file:{folder}/other.db?mode=rwc' AS other",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO '{folder}/copy.db'",
        "PRAGMA writable_schema = ON",
        "PRAGMA query_only = OFF",
        "PRAGMA trusted_schema = ON",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA temp_store_directory = '{folder}'",
        "SELECT load_extension('{folder}/x.so')",
        "SELECT fts3_tokenizer('simple', x'00000000')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('{folder}/x', 'y')",
        "SELECT edit('x')",
        "SELECT * FROM pragma_table_info('secrets')",
        "SELECT count(*) FROM pragma_database_list",
        "SELECT count(*) FROM dbstat",
        "SELECT sql FROM sqlite_stmt",
        "SELECT count(*) FROM sqlite_stmt",
        "CREATE TABLE x (y)",
        "CREATE TEMP TABLE x (y)",
        "CREATE TEMP TRIGGER x AFTER INSERT ON orders BEGIN DELETE FROM orders; END",
        "CREATE VIRTUAL TABLE x USING fts5 (y)",
        "CREATE VIEW x AS SELECT 1",
        "DROP TABLE orders",
        "ALTER TABLE orders ADD COLUMN x",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "COMMIT",
        "SAVEPOINT x",
        "UPDATE sqlite_master SET sql = 'x'",
        "INSERT INTO sqlite_sequence VALUES ('orders', 1000)",
        "DELETE FROM orders; DROP TABLE orders",
        "SELECT 1; DELETE FROM orders",
        "SELECT 1 /* ; */ ; DELETE FROM orders -- ",
        "SELECT 1 -- \n; DELETE FROM orders",
        "EXPLAIN SELECT 1",
        "QUERY PLAN SELECT 1",
        "",
        " ; ",
        "-- nothing",
        "SELECT '\ud800'",
    ],
)
async def test_a_statement_is_refused_before_it_is_executed(
    sql: SqlToolkit, path: Path, tool: str, statement: str
) -> None:
    written = statement.replace("{folder}", str(path.parent))
    with pytest.raises(ToolInputError):
        await needs(sql, written, tool=tool)
    with pytest.raises(ToolError):
        await call(sql, tool, EVERYTHING, sql=written or " ")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders",
        "INSERT INTO journal VALUES (1)",
        "WITH x AS (SELECT 1) UPDATE orders SET cents = 1",
    ],
)
async def test_a_query_changes_nothing(sql: SqlToolkit, statement: str) -> None:
    with pytest.raises(ToolInputError, match="changes the database"):
        await query(sql, statement)


async def test_a_read_only_toolkit_has_no_tool_that_changes(path: Path) -> None:
    assert "sql_execute" not in [one.name for one in SqlToolkit(path=path).tools()]


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.mark.parametrize(
    "statement",
    [
        f"{ENDLESS} SELECT count(*) FROM n",
        f"{ENDLESS} SELECT max(i) FROM n",
        "SELECT count(*) FROM orders a, orders b" + "".join(f", orders c{at}" for at in range(40)),
    ],
)
async def test_a_statement_that_does_not_end_is_stopped(sql: SqlToolkit, statement: str) -> None:
    with pytest.raises(ToolExecutionError, match="did not end in 1 s"):
        await query(sql, statement)


@pytest.mark.parametrize(
    "statement",
    [
        f"{ENDLESS} SELECT i, printf('%01000d', i) FROM n ORDER BY 2 DESC",  # a sort larger than memory
        f"{ENDLESS} SELECT group_concat(i) FROM n",
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(1000000000)",
        "SELECT printf('%.*c', 1000000000, 'x')",
        "SELECT replace(hex(zeroblob(8000000)), '0', 'xxxxxxxxxxxxxxxx')",
        "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "+".join(["1"] * 2_000),
        "SELECT 1" + " UNION SELECT 1" * 500,
        "SELECT 'a' LIKE '" + "%a" * 20_000 + "'",
        "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1')",  # one instruction, very long
    ],
    ids=lambda text: text[:40],
)
async def test_a_statement_that_needs_too_much_fails(path: Path, statement: str) -> None:
    toolkit = SqlToolkit(path=path, timeout_s=1, memory_bytes=64 * 1024 * 1024)
    with pytest.raises(ToolError):
        await query(toolkit, statement)


async def test_a_damaged_file_harms_nobody_else(path: Path) -> None:
    original = path.read_bytes()
    try:
        for at in range(4_096, len(original), 3_001):
            path.write_bytes(original[:at] + b"\xff\xfe\x7f\x00\x81" * 40 + original[at + 200 :])
            try:
                await query(SqlToolkit(path=path, timeout_s=1), "SELECT * FROM orders, notes, secrets")
            except ToolError:
                continue
    finally:
        path.write_bytes(original)


async def test_a_schema_that_changes_after_the_judgement_gives_nothing_away(
    sql: SqlToolkit, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is changed when the statement has been compiled, before it is executed."""
    original, served = path.read_bytes(), module._served

    async def later(request: object, *arguments: object, **named: object) -> bytes:
        with sqlite3.connect(path) as connection:
            connection.executescript(
                "DROP VIEW cheap; CREATE VIEW cheap AS SELECT 1 AS id, word AS item FROM secrets"
            )
        connection.close()
        return await served(request, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_served", later)
    try:
        with pytest.raises(ToolInputError, match="secrets was not to be read"):
            await query(sql, "SELECT id, item FROM cheap", granted=("sql:read:cheap", "sql:read:orders"))
    finally:
        path.write_bytes(original)
