"""SQL on a Postgres server: results within limits, and needs that Postgres itself finds, by its locks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from noesium_stream.errors import (
    ConfigError,
    ToolExecutionError,
    ToolInputError,
    ToolPermissionError,
    ToolServerError,
)
from noesium_stream.tool.builtin.sql.toolkit import SqlToolkit
from tests.support.postgres import Postgres, running_postgres
from tests.support.sql_tools import call, needs, query

READ = ("sql:read",)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        yield postgres


@pytest.fixture
def dsn(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> str:
    dsn = server.shop("shop")
    monkeypatch.setenv("SHOP_DSN", dsn)
    return dsn


@pytest.fixture
def sql(dsn: str) -> SqlToolkit:
    return SqlToolkit(dsn_env="SHOP_DSN", writable=True)


async def test_a_query_gives_columns_and_rows(sql: SqlToolkit) -> None:
    found = await call(sql, "query", sql="SELECT item, cents FROM orders WHERE id = $1;", parameters=[2])
    assert found == {"columns": ["item", "cents"], "rows": [["oil", 900]], "truncated": False}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("NULL", None),
        ("2147483647", 2**31 - 1),
        ("1.5::float8", 1.5),
        ("'NaN'::float8", "nan"),
        ("12.50", "12.50"),
        ("true", True),
        ("ARRAY[1, 2]", "{1,2}"),
        ("'{\"a\": 1}'::jsonb", '{"a": 1}'),
        ("date '2026-01-02'", "2026-01-02"),
        ("date 'infinity'", "infinity"),
        ("'\\x00ff'::bytea", "\\x00ff"),
        ("ROW(1, 'a')", "(1,a)"),
        ("$1::int + 1", 8),
        ("random() < 2 -- a comment", True),
    ],
)
async def test_values_have_a_json_form(sql: SqlToolkit, written: str, value: Any) -> None:
    given = [7] if "$1" in written else []
    assert await query(sql, f"SELECT {written}", *given) == [[value]]


async def test_rows_values_and_bytes_are_bounded(dsn: str) -> None:
    small = SqlToolkit(dsn_env="SHOP_DSN", max_rows=3, max_cell=16, max_bytes=1_024)
    found = await call(small, "query", sql="SELECT i FROM generate_series(1, 1000) i ORDER BY i DESC")
    assert (found["rows"], found["truncated"]) == ([[1000], [999], [998]], True)
    found = await call(small, "query", sql="SELECT repeat('x', 100000)")
    assert (found["rows"], found["truncated"]) == ([["x" * 16]], True)
    wide = ", ".join(["'0123456789'"] * 200)
    assert (await call(small, "query", sql=f"SELECT {wide}"))["rows"] == []


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT 1", []),
        ("VALUES (1)", []),
        ("TABLE Orders", ["sql:read:orders"]),
        ("SELECT 1 FROM cheap", ["sql:read:cheap", "sql:read:orders"]),
        ("SELECT word FROM words WHERE false", ["sql:read:secrets", "sql:read:words"]),
        ("WITH secrets AS (SELECT 1 AS word) SELECT word FROM secrets", []),
        ("SELECT (SELECT word FROM secrets) /* orders */", ["sql:read:secrets"]),
        ("SELECT cents FROM totals", ["sql:read:totals"]),
        ("SELECT * FROM events_1", ["sql:read:events"]),
        ("SELECT id FROM private.orders", ["sql:read:private.orders"]),
        ("SELECT relname FROM pg_class", ["sql:read:pg_catalog.pg_class"]),
    ],
)
async def test_what_a_query_needs_is_found_by_postgres(
    sql: SqlToolkit, statement: str, expected: list[str]
) -> None:
    assert await needs(sql, statement) == expected
    await query(sql, statement, granted=expected)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("INSERT INTO journal SELECT word FROM secrets", ["sql:read:secrets", "sql:write:journal"]),
        ("INSERT INTO cheap (item) VALUES ('x')", ["sql:write:cheap", "sql:write:orders"]),
        ("DELETE FROM journal RETURNING line", ["sql:write:journal"]),
        ("INSERT INTO events VALUES (2, 'x')", ["sql:write:events"]),
    ],
)
async def test_what_a_change_needs_is_found_by_postgres(
    sql: SqlToolkit, statement: str, expected: list[str]
) -> None:
    assert await needs(sql, statement, tool="execute") == expected
    await call(sql, "execute", expected, sql=statement)


async def test_a_change_is_made_and_counted(sql: SqlToolkit, server: Postgres) -> None:
    statement = "UPDATE orders SET cents = cents + $1 RETURNING id, cents"
    granted = ("sql:write:orders", "sql:write:journal")
    found = await call(sql, "execute", granted, sql=statement, parameters=[1])
    assert sorted(found.pop("rows")) == [[1, 301], [2, 901]]
    assert found == {"columns": ["id", "cents"], "truncated": False, "changed": 2}
    assert server.run("shop", "SELECT line FROM journal ORDER BY 1") == [("oil",), ("tea",)]
    assert (await call(sql, "execute", sql="DELETE FROM journal"))["changed"] == 2


async def test_a_change_is_committed_although_its_result_is_cut(dsn: str, server: Postgres) -> None:
    toolkit = SqlToolkit(dsn_env="SHOP_DSN", writable=True, max_rows=1)
    found = await call(toolkit, "execute", sql="DELETE FROM orders RETURNING item")
    assert (len(found["rows"]), found["truncated"], found["changed"]) == (1, True, 2)
    assert server.run("shop", "SELECT * FROM orders") == []


@pytest.mark.parametrize(
    ("tool", "statement", "granted"),
    [
        ("query", "SELECT * FROM words", ("sql:read:words", "sql:read:orders")),
        ("query", "SELECT * FROM orders", ()),
        ("query", "SELECT word()", ("sql:read:orders",)),  # reads secrets while it is executed
        ("query", "SELECT id FROM private.orders", ("sql:read:orders",)),
        ("execute", "UPDATE orders SET item = 'x'", ("sql:write:orders",)),  # a trigger writes
        ("execute", "INSERT INTO orders (item, customer) VALUES ('x', 1)", ("sql:write:orders",)),  # a key
        ("execute", "INSERT INTO journal SELECT word FROM secrets", ("sql:write:journal",)),
    ],
)
async def test_a_call_that_touches_more_than_is_granted_gives_and_changes_nothing(
    sql: SqlToolkit, server: Postgres, tool: str, statement: str, granted: tuple[str, ...]
) -> None:
    with pytest.raises(ToolPermissionError, match="was not granted"):
        await call(sql, tool, granted, sql=statement)
    assert server.run("shop", "SELECT count(*) FROM journal") == [(0,)]
    assert server.run("shop", "SELECT min(item), max(item) FROM orders") == [("oil", "tea")]


async def test_an_error_does_not_show_what_was_not_granted(sql: SqlToolkit) -> None:
    with pytest.raises(ToolPermissionError) as raised:
        await query(sql, "SELECT word::int FROM secrets", granted=("sql:read:orders",))
    assert "xyzzy" not in str(raised.value)


async def test_a_call_is_not_made_again_under_its_key(dsn: str, server: Postgres) -> None:
    toolkit = SqlToolkit(dsn_env="SHOP_DSN", writable=True, keys_table="calls")
    statement = "INSERT INTO journal VALUES ($1) RETURNING line"
    arguments = {"sql": statement, "parameters": ["one"]}
    granted = ("sql:write:journal",)
    both = (call(toolkit, "execute", granted, "a", **arguments) for _ in range(2))
    first, second = await asyncio.gather(*both)
    assert first == second
    assert await call(toolkit, "execute", granted, "a", **arguments) == first
    assert server.run("shop", "SELECT line FROM journal") == [("one",)]
    with pytest.raises(ToolInputError, match="table of the keys"):
        await call(toolkit, "execute", call_id="b", sql="DELETE FROM calls")


async def test_a_failed_change_leaves_no_key(dsn: str, server: Postgres) -> None:
    toolkit = SqlToolkit(dsn_env="SHOP_DSN", writable=True, keys_table="calls")
    with pytest.raises(ToolExecutionError, match="foreign key"):
        await call(toolkit, "execute", call_id="a", sql="INSERT INTO orders (customer) VALUES (99)")
    assert server.run("shop", "SELECT * FROM calls") == []


async def test_tables_are_listed_and_described_as_far_as_they_are_granted(sql: SqlToolkit) -> None:
    listed = await call(sql, "list_tables", ("sql:read:orders", "sql:read:cheap", "sql:read:private.*"))
    assert listed == [
        {"name": "cheap", "kind": "view"},
        {"name": "orders", "kind": "table"},
        {"name": "private.orders", "kind": "table"},
    ]
    assert "events_1" not in [one["name"] for one in await call(sql, "list_tables")]
    columns = await call(sql, "describe_table", table="customers")
    assert columns == [
        {"name": "id", "type": "integer", "nullable": False, "key": 1},
        {"name": "name", "type": "text", "nullable": False, "key": 0},
    ]
    with pytest.raises(ToolInputError, match="no table"):
        await call(sql, "describe_table", table="nothing")


async def test_a_server_that_does_not_answer_is_told_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_DSN", "postgresql://clerk:secret@127.0.0.1:1/shop")
    with pytest.raises(ToolServerError, match="SHOP_DSN does not answer") as raised:
        await needs(SqlToolkit(dsn_env="SHOP_DSN"), "SELECT 1")
    assert "secret" not in str(raised.value)


async def test_a_variable_without_a_connection_string_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_DSN", raising=False)
    with pytest.raises(ConfigError, match="SHOP_DSN"):
        await needs(SqlToolkit(dsn_env="SHOP_DSN"), "SELECT 1")


async def test_values_that_do_not_fit_are_refused(sql: SqlToolkit) -> None:
    for given in ([], [1, 2]):
        with pytest.raises(ToolInputError, match="1 parameters"):
            await needs(sql, "SELECT $1::int", *given)
    with pytest.raises(ToolExecutionError, match="invalid input syntax"):
        await query(sql, "SELECT $1::int", "x")
