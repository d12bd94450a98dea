"""Statements that try to leave the tables of their Postgres database, or to have effects while they read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noesium_stream.errors import ToolError, ToolExecutionError, ToolInputError, ToolPermissionError
from noesium_stream.tool.builtin.sql.postgres_text import called
from noesium_stream.tool.builtin.sql.toolkit import SqlToolkit
from tests.support.postgres import Postgres, running_postgres
from tests.support.sql_tools import EVERYTHING, call, needs, query


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as postgres:
        dsn = postgres.shop("shop")
        # as bad as it can be: the role of the agents is an administrator
        postgres.run("postgres", "ALTER ROLE clerk SUPERUSER")
        if postgres.run("shop", "SELECT 1 FROM pg_available_extensions WHERE name = 'dblink'"):
            postgres.run("shop", "CREATE EXTENSION dblink")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHOP_DSN", dsn)
            yield postgres


@pytest.fixture
def sql(server: Postgres) -> SqlToolkit:
    return SqlToolkit(dsn_env="SHOP_DSN", writable=True, timeout_s=1)


@pytest.fixture(autouse=True)
def _unchanged(server: Postgres) -> Iterator[None]:
    def state() -> object:
        orders = server.run("shop", "SELECT * FROM orders ORDER BY id")
        return orders, server.run("shop", "SELECT last_value, is_called FROM orders_id_seq")

    before = state()
    yield
    assert state() == before


@pytest.mark.parametrize("tool", ["query", "execute"])
@pytest.mark.parametrize(
    "statement",
    [
        "COPY orders TO PROGRAM 'id'",
        "COPY orders TO '/tmp/x'",
        "COPY orders FROM PROGRAM 'id'",
        "SELECT 1; DROP TABLE orders",
        "SELECT 1; DELETE FROM orders -- ",
        "SELECT 1 /* ' */ ; DELETE FROM orders",
        "SELECT 1) SELECT 2 FROM (SELECT 1",
        "SELECT 1) DELETE FROM orders RETURNING (1",
        "DO $$ BEGIN DELETE FROM orders; END $$",
        "CALL x()",
        "SET ROLE postgres",
        "SET TRANSACTION READ WRITE",
        "RESET ALL",
        "BEGIN",
        "COMMIT",
        "COMMIT; BEGIN",
        "ROLLBACK",
        "LISTEN x",
        "NOTIFY x",
        "LOCK TABLE orders",
        "VACUUM",
        "CREATE TABLE x (y int)",
        "CREATE TEMP TABLE x AS SELECT 1",
        "SELECT 1 AS y INTO x",
        "DROP TABLE orders",
        "TRUNCATE orders",
        "EXPLAIN ANALYZE DELETE FROM orders",
        "EXECUTE statement",
        "DEALLOCATE ALL",
        "PREPARE x AS SELECT 1",
        "DECLARE c CURSOR FOR SELECT 1",
        "LOAD 'x'",
        "ALTER SYSTEM SET work_mem = '1GB'",
        "SHOW ALL",
        "SELECT nextval('orders_id_seq')",
        "SELECT setval('orders_id_seq', 1000)",
        "SELECT \"nextval\"('orders_id_seq')",
        "SELECT pg_catalog . NextVal ('orders_id_seq')",
        "SELECT U&\"\\006eextval\"('orders_id_seq')",
        "SELECT nextval/**/('orders_id_seq')",
        "SELECT purge()",
        "SELECT public.purge() FROM orders",
        'SELECT "odd ""name"()',
        "SELECT pg_terminate_backend(1)",
        "SELECT pg_cancel_backend(1)",
        "SELECT pg_sleep(1)",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_get(1)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_notify('x', 'y')",
        "SELECT set_config('transaction_read_only', 'off', true)",
        "SELECT current_setting('data_directory')",
        "SELECT dblink_connect('dbname=shop')",
        "SELECT * FROM dblink('dbname=shop', 'DELETE FROM orders') AS t(x text)",
        "SELECT query_to_xml('DELETE FROM orders', true, true, '')",
        "SELECT table_to_xml('secrets', true, true, '')",
        "SELECT database_to_xml(true, true, '')",
        "SELECT ts_stat('SELECT word FROM secrets')",
        "SELECT * FROM pg_stat_file('/etc/passwd')",
        "",
        ";",
        "-- nothing",
    ],
)
async def test_a_statement_is_refused_before_it_is_executed(
    sql: SqlToolkit, tool: str, statement: str
) -> None:
    with pytest.raises(ToolInputError):
        await needs(sql, statement, tool=tool)
    with pytest.raises(ToolError):
        await call(sql, tool, EVERYTHING, sql=statement or " ")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM orders",
        "WITH gone AS (DELETE FROM orders RETURNING id) SELECT id FROM gone",
        "INSERT INTO orders (item) VALUES ('x') RETURNING id",
        "MERGE INTO orders USING customers ON false WHEN NOT MATCHED THEN INSERT (item) VALUES ('x')",
    ],
)
async def test_a_query_changes_nothing(sql: SqlToolkit, statement: str) -> None:
    with pytest.raises(ToolInputError, match="changes the database"):
        await query(sql, statement)


async def test_a_query_takes_no_row_locks(sql: SqlToolkit) -> None:
    with pytest.raises(ToolExecutionError, match="read-only transaction"):
        await query(sql, "SELECT id FROM orders FOR UPDATE")


async def test_a_function_that_hides_an_effect_meets_a_transaction_that_reads(
    sql: SqlToolkit, server: Postgres
) -> None:
    server.run("shop", "ALTER FUNCTION purge() STABLE")
    try:
        for allowed in ((), ("purge",)):
            with pytest.raises(ToolExecutionError, match=r"not allowed|read-only"):
                await query(SqlToolkit(dsn_env="SHOP_DSN", functions=allowed), "SELECT purge()")
    finally:
        server.run("shop", "ALTER FUNCTION purge() VOLATILE")


async def test_what_a_function_reads_is_found_when_it_has_read(sql: SqlToolkit) -> None:
    with pytest.raises(ToolPermissionError, match="sql:read:secrets"):
        await query(sql, "SELECT word()", granted=("sql:read:orders",))


async def test_a_function_that_an_operator_allows_is_called(server: Postgres) -> None:
    toolkit = SqlToolkit(dsn_env="SHOP_DSN", functions=("pg_backend_pid",))
    assert await query(toolkit, "SELECT pg_backend_pid() > 0", granted=()) == [[True]]


@pytest.mark.parametrize(
    "statement",
    [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "SELECT count(*) FROM generate_series(1, 10000000000)",
        "SELECT a FROM generate_series(1, 100000000) a ORDER BY a DESC",
    ],
)
async def test_a_statement_that_does_not_end_is_stopped(sql: SqlToolkit, statement: str) -> None:
    with pytest.raises(ToolExecutionError, match="did not end in 1 s"):
        await query(sql, statement)


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("SELECT nextval('x')", True),
        ('SELECT "nextval"(1)', True),
        ("SELECT 1nextval(1)", True),
        ("SELECT 'nextval'", True),
        ("SELECT my_nextval, nextvalue, nextval_2 FROM x", False),
        ("SELECT \N{NO-BREAK SPACE}nextval(1)", False),  # one name, for Postgres
    ],
)
def test_a_name_is_found_wherever_it_stands_as_a_word(statement: str, found: bool) -> None:
    assert called(statement, ["nextval"]) == ({"nextval"} if found else set())


def test_a_name_that_is_cut_is_found() -> None:
    name = "f" * 63
    assert called(f"SELECT {name}ffff()", [name]) == {name}
