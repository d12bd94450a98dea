"""SQL on an SQLite file: results within limits, and needs that SQLite itself finds."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from noesium_stream.errors import (
    ConfigError,
    ToolExecutionError,
    ToolInputError,
    ToolPermissionError,
    ToolServerError,
)
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.builtin.sql.toolkit import SqlToolkit
from tests.support.sql_tools import call, content, needs, query, shop, tool_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return shop(tmp_path)


@pytest.fixture
def sql(path: Path) -> SqlToolkit:
    return SqlToolkit(path=path, writable=True)


async def test_a_query_gives_columns_and_rows(sql: SqlToolkit) -> None:
    found = await call(sql, "query", sql="SELECT item, cents FROM orders WHERE id = ?", parameters=[2])
    assert found == {"columns": ["item", "cents"], "rows": [["oil", 900]], "truncated": False}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NULL", None),
        ("9223372036854775807", 2**63 - 1),
        ("1e999", "inf"),
        ("x'00ff'", "\\x00ff"),
        ("'a' || char(0) || 'b'", "a\N{REPLACEMENT CHARACTER}b"),
        ("CAST(x'ff41' AS TEXT)", "\N{REPLACEMENT CHARACTER}A"),
        ("?", True),
    ],
)
async def test_values_have_a_json_form(sql: SqlToolkit, written: str, value: Any) -> None:
    given = [True] if written == "?" else []
    assert await query(sql, f"SELECT {written}", *given) == [[value]]


async def test_rows_values_and_bytes_are_bounded(path: Path) -> None:
    small = SqlToolkit(path=path, max_rows=3, max_cell=16, max_bytes=1_024)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    found = await call(small, "query", sql=numbers)
    assert (found["rows"], found["truncated"]) == ([[1], [2], [3]], True)
    found = await call(small, "query", sql="SELECT printf('%.*c', 100000, 'x'), zeroblob(100000)")
    assert (found["rows"], found["truncated"]) == ([["x" * 16, "\\x" + "0" * 14]], True)
    wide = ", ".join(["'0123456789'"] * 200)
    assert (await call(small, "query", sql=f"SELECT {wide}"))["rows"] == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT 1", []),
        ("SELECT count(*) FROM orders", ["sql:read:orders"]),
        (
            "SELECT * FROM ORDERS o JOIN customers c ON c.id = o.customer",
            ["sql:read:customers", "sql:read:orders"],
        ),
        ("SELECT * FROM words", ["sql:read:secrets", "sql:read:words"]),
        ("SELECT (SELECT word FROM secrets) /* orders */", ["sql:read:secrets"]),
        ("WITH secrets AS (SELECT 1 AS word) SELECT word FROM secrets", []),
        ("WITH found AS (SELECT 1) SELECT count(*) FROM found", []),
        ("SELECT value FROM json_each('[1]')", []),
        ("SELECT body FROM notes WHERE notes MATCH 'tea'", ["sql:read:notes"]),
        ("SELECT * FROM notes_content", ["sql:read:notes"]),
        ("SELECT name FROM sqlite_master", ["sql:read:sqlite_master"]),
        ("SELECT count(*) FROM sqlite_schema", ["sql:read:sqlite_schema"]),
        ("EXPLAIN QUERY PLAN SELECT * FROM secrets", ["sql:read:secrets"]),
    ],
)
async def test_what_a_query_needs_is_found_by_sqlite(
    sql: SqlToolkit, statement: str, expected: list[str]
) -> None:
    if statement.startswith("EXPLAIN"):
        with pytest.raises(ToolInputError):
            await needs(sql, statement)
    else:
        assert await needs(sql, statement) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO journal SELECT word FROM secrets", ["sql:read:secrets", "sql:write:journal"]),
        ("UPDATE orders SET cents = 1", ["sql:write:journal", "sql:write:orders"]),  # by a trigger
        ("INSERT INTO orders (item) VALUES ('x')", ["sql:read:customers", "sql:write:orders"]),  # by a key
        ("DELETE FROM journal RETURNING line", ["sql:write:journal"]),
        ("INSERT INTO notes VALUES ('x')", ["sql:write:notes"]),
    ],
)
async def test_what_a_change_needs_is_found_by_sqlite(
    sql: SqlToolkit, statement: str, expected: list[str]
) -> None:
    assert await needs(sql, statement, tool="execute") == expected


async def test_a_change_is_made_and_counted(sql: SqlToolkit, path: Path) -> None:
    statement = "UPDATE orders SET cents = cents + ? RETURNING id, cents"
    granted = ("sql:write:orders", "sql:write:journal")
    found = await call(sql, "execute", granted, sql=statement, parameters=[1])
    assert found == {
        "columns": ["id", "cents"],
        "rows": [[1, 301], [2, 901]],
        "truncated": False,
        "changed": 2,
    }
    assert content(path, "journal") == [("tea",), ("oil",)]
    await call(sql, "execute", ("sql:write:notes",), sql="INSERT INTO notes VALUES ('milk is white')")
    assert await query(sql, "SELECT body FROM notes WHERE notes MATCH 'milk'") == [["milk is white"]]


async def test_a_change_is_committed_although_its_result_is_cut(path: Path) -> None:
    toolkit = SqlToolkit(path=path, writable=True, max_rows=1)
    found = await call(toolkit, "execute", sql="DELETE FROM orders RETURNING id")
    assert (found["rows"], found["truncated"], found["changed"]) == ([[1]], True, 2)
    assert content(path, "orders") == []


async def test_a_change_that_breaks_a_constraint_is_undone(sql: SqlToolkit, path: Path) -> None:
    statement = "INSERT INTO orders (item, customer) VALUES ('x', 1), ('y', 99)"
    with pytest.raises(ToolExecutionError, match="FOREIGN KEY constraint failed"):
        await call(sql, "execute", sql=statement)
    assert len(content(path, "orders")) == 2


@pytest.mark.parametrize(
    ("tool", "statement", "granted"),
    [
        ("query", "SELECT * FROM words", ("sql:read:words", "sql:read:orders")),
        ("query", "SELECT * FROM secrets", ()),
        ("execute", "UPDATE orders SET item = 'x'", ("sql:write:orders",)),
        ("execute", "UPDATE orders SET item = 'x'", ("sql:read",)),
        ("execute", "INSERT INTO journal SELECT word FROM secrets", ("sql:write:journal",)),
    ],
)
async def test_a_call_without_its_grants_is_refused_by_the_tool_as_well(
    sql: SqlToolkit, path: Path, tool: str, statement: str, granted: tuple[str, ...]
) -> None:
    with pytest.raises(ToolPermissionError, match="was not granted"):
        await call(sql, tool, granted, sql=statement)
    assert (content(path, "journal"), content(path, "orders")[0][1]) == ([], "tea")


async def test_a_call_is_not_made_again_under_its_key(path: Path) -> None:
    toolkit = SqlToolkit(path=path, writable=True, keys_table="calls")
    assert tool_of(toolkit, "execute").side_effect_class is SideEffectClass.IDEMPOTENT
    statement = "INSERT INTO journal VALUES (?) RETURNING line"
    first = await call(toolkit, "execute", call_id="a", sql=statement, parameters=["one"])
    assert await call(toolkit, "execute", call_id="a", sql=statement, parameters=["one"]) == first
    await call(toolkit, "execute", call_id="b", sql=statement, parameters=["two"])
    assert content(path, "journal") == [("one",), ("two",)]


@pytest.mark.parametrize("statement", ["DELETE FROM calls", "INSERT INTO CALLS VALUES ('b', '{}')"])
async def test_the_keys_are_not_for_statements(path: Path, statement: str) -> None:
    toolkit = SqlToolkit(path=path, writable=True, keys_table="calls")
    with pytest.raises(ToolInputError, match="table of the keys"):
        await call(toolkit, "execute", call_id="a", sql=statement)
    assert "calls" not in [one["name"] for one in await call(toolkit, "list_tables")]


async def test_a_failed_change_leaves_no_key(path: Path) -> None:
    toolkit = SqlToolkit(path=path, writable=True, keys_table="calls")
    with pytest.raises(ToolExecutionError):
        await call(toolkit, "execute", call_id="a", sql="INSERT INTO customers (id) VALUES (9)")
    assert content(path, "calls") == []


async def test_tables_are_listed_and_described_as_far_as_they_are_granted(sql: SqlToolkit) -> None:
    listed = await call(sql, "list_tables", ("sql:read:orders", "sql:read:cheap"))
    assert listed == [{"name": "cheap", "kind": "view"}, {"name": "orders", "kind": "table"}]
    columns = await call(sql, "describe_table", table="customers")
    assert columns == [
        {"name": "id", "type": "INTEGER", "nullable": True, "key": 1},
        {"name": "name", "type": "TEXT", "nullable": False, "key": 0},
    ]
    with pytest.raises(ToolInputError, match="no table"):
        await call(sql, "describe_table", table="nothing")


async def test_another_name_is_a_part_of_tools_and_permissions(path: Path) -> None:
    crm = SqlToolkit(path=path, name="crm")
    assert [one.tool_id for one in crm.tools()] == [
        "builtin:crm.crm_describe_table",
        "builtin:crm.crm_list_tables",
        "builtin:crm.crm_query",
    ]
    assert await needs(crm, "SELECT * FROM orders") == ["sql:read:crm/orders"]
    assert tool_of(crm, "describe_table").permissions == ("sql:read:crm/{table}",)
    assert await query(crm, "SELECT 1 FROM secrets", granted=("sql:read:crm/secrets",)) == [[1]]
    with pytest.raises(ToolPermissionError):
        await query(crm, "SELECT 1 FROM secrets", granted=("sql:read:secrets",))


async def test_a_name_with_marks_cannot_stand_for_another_table(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE "crm/orders" (id)')
        connection.execute('CREATE TABLE "o*" (id)')
    connection.close()
    toolkit = SqlToolkit(path=path)
    assert await needs(toolkit, 'SELECT * FROM "crm/orders"') == ['sql:read:"crm/orders"']
    with pytest.raises(ToolPermissionError):
        await query(toolkit, 'SELECT * FROM "o*"', granted=("sql:read:orders", "sql:read:o"))


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    toolkit = SqlToolkit(path=tmp_path / "none.db", writable=True)
    with pytest.raises(ToolServerError, match="unable to open"):
        await needs(toolkit, "SELECT 1")
    with pytest.raises(ToolServerError, match="unable to open"):
        await call(toolkit, "list_tables")
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("no database, " * 100)
    with pytest.raises(ToolServerError, match="not a database"):
        await needs(SqlToolkit(path=tmp_path / "text.db"), "SELECT * FROM x")


@pytest.mark.parametrize(
    "settings", [{}, {"path": "a.db", "dsn_env": "DSN"}, {"path": "a.db", "keys_table": 'x"'}]
)
def test_settings_that_name_no_database_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        SqlToolkit(**settings)


async def test_values_that_do_not_fit_are_refused(sql: SqlToolkit) -> None:
    for given in ([], [1, 2], [2**70]):
        with pytest.raises(ToolInputError):
            await needs(sql, "SELECT ?", *given)
