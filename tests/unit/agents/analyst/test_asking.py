"""Questions without a model: what is understood becomes SQL, and what is not is refused with its word."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.analyst.asking import AboutSchema, CannotAnswer, understood
from agents.analyst.plan import sql_of

TABLES: list[dict[str, Any]] = [
    {
        "name": "customers",
        "columns": [
            {"name": "id", "type": "INTEGER", "key": 1},
            {"name": "name", "type": "TEXT", "key": 0},
            {"name": "city", "type": "TEXT", "key": 0},
        ],
    },
    {
        "name": "order_items",
        "columns": [
            {"name": "id", "type": "INTEGER", "key": 1},
            {"name": "customer", "type": "INT", "key": 0},
            {"name": "unitPrice", "type": "INT", "key": 0},
            {"name": "status", "type": "TEXT", "key": 0},
            {"name": "ordered_at", "type": "TEXT", "key": 0},
        ],
    },
]
ROWS = [
    (1, 1, 300, "open", "2026-01-03"),
    (2, 1, 900, "paid", "2026-01-09"),
    (3, 2, 350, "paid", "2026-02-01"),
    (4, 2, None, "50% off", "2026-02-02"),
]


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript(
        """
        CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
        CREATE TABLE order_items (id INTEGER PRIMARY KEY, customer INT, unitPrice INT, status TEXT,
            ordered_at TEXT);
        INSERT INTO customers VALUES (1, 'Ada', 'Paris'), (2, 'Bob', 'Rome');
        """
    )
    connection.executemany("INSERT INTO order_items VALUES (?, ?, ?, ?, ?)", ROWS)
    return connection


def answer(database: sqlite3.Connection, question: str) -> list[tuple[Any, ...]]:
    plan = understood(question, TABLES)
    assert not isinstance(plan, AboutSchema)
    return database.execute(*sql_of(plan, "sqlite", ["id"])).fetchall()


@pytest.mark.parametrize(
    ("question", "rows"),
    [
        ("How many customers are there?", [(2,)]),
        ("how many order items by status", [("50% off", 1), ("open", 1), ("paid", 2)]),
        ("count of OrderItems where status is paid", [(2,)]),
        ("How many order items where unit price over 300 and customer is 2?", [(1,)]),
        ("sum of unit price", [(1550,)]),
        ("total unit price by month of ordered at", [("2026-01", 1200), ("2026-02", 350)]),
        ("average unitPrice by customer where ordered_at before 2026-02-02", [(1, 600.0), (2, 350.0)]),
        ("highest unit price of order items", [(900,)]),
        ("top 1 order items by unit price", [ROWS[1]]),
        ("bottom 1 order items by unit price", [ROWS[3]]),
        ("top 1 customers by sum of unit price", [(1, 1200)]),
        ("top 2 status by count", [("paid", 2), ("50% off", 1)]),
        ("list customers where city is Paris", [(1, "Ada", "Paris")]),
        ("list customers name, city sorted by city descending", [("Bob", "Rome"), ("Ada", "Paris")]),
        ('show order items status where status is "50% off"', [("50% off",)]),
        ("list order items status where status contains 0%", [("50% off",)]),
        ("list customers name where name starts with a", [("Ada",)]),
        ("list customers name where name is not Ada", [("Bob",)]),
        ("list 1 order items id sorted by ordered at", [(1,)]),
    ],
)
def test_a_question_is_answered_by_the_statement_that_it_means(
    database: sqlite3.Connection, question: str, rows: list[tuple[Any, ...]]
) -> None:
    assert answer(database, question) == rows


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("how many order items were cancelled", "'cancelled' is no table"),
        ("delete all customers", "does not begin with"),
        ("how many orders", "names no table; there are 'customers', 'order_items'"),
        ("sum of city of customers", "has no numbers"),
        ("sum of customers", "does not say of which column"),
        ("list customers where planet is Mars", "does not begin with a column"),
        ("list customers where city is", "has no value"),
        ("list customers where city is Paris or city is Rome", "need a model"),
        ("sum of unit price by city", "No single table"),
        ("how many ids", "fits several tables"),
        ("top 900 customers by id", "asks for 900 rows"),
        ("how many customers by moon", "'moon' behind `by` is no column"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_reason(question: str, reason: str) -> None:
    with pytest.raises(CannotAnswer, match=reason):
        understood(question, TABLES)


def test_questions_about_the_schema_need_no_statement() -> None:
    assert understood("Which tables are there?", TABLES) == AboutSchema(None)
    assert understood("columns of order items", TABLES) == AboutSchema("order_items")
    assert understood("describe customers", TABLES) == AboutSchema("customers")


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)


@given(NAMES, NAMES, NAMES)
def test_whatever_a_schema_and_a_value_are_named_a_statement_has_them_as_names_and_values_alone(
    table: str, column: str, value: str
) -> None:
    quoted_table, quoted_column = ('"' + name.replace('"', '""') + '"' for name in (table, column))
    if table.lower().startswith("sqlite_"):
        return
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE {quoted_table} ({quoted_column} TEXT)")
    database.execute(f"INSERT INTO {quoted_table} VALUES (?)", [value])
    tables = [{"name": quoted_table, "columns": [{"name": column, "type": "TEXT", "key": 0}]}]
    try:
        plan = understood(f"list {table} where {column} is {value}", tables)
    except CannotAnswer:
        return
    assert not isinstance(plan, AboutSchema)
    rows = database.execute(*sql_of(plan, "sqlite")).fetchall()
    assert rows in ([], [(value,)])


@given(st.text(max_size=300))
def test_no_text_breaks_the_reading_of_a_question(question: str) -> None:
    with suppress(CannotAnswer):
        understood(question, TABLES)


def test_a_server_gets_its_own_parameters_and_the_same_statement_otherwise() -> None:
    plan = understood("list customers where id over 1 and city contains o", TABLES)
    assert not isinstance(plan, AboutSchema)
    statement, values = sql_of(plan, "postgres", ["id"])
    assert statement == (
        'SELECT * FROM "customers" WHERE "id" > $1 AND lower(CAST("city" AS text)) LIKE lower($2)'
        " ESCAPE '\\' ORDER BY \"id\""
    )
    assert values == [1, "%o%"]
