"""Questions without a model: what is understood becomes SQL, and what is not is refused with its word."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.analyst.asking import AboutSchema, understood
from agents.analyst.plan import CannotAnswer, sql_of

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
            {"name": "due", "type": "DATE", "key": 0},
        ],
    },
]
ROWS = [
    (1, 1, 300, "open", "2026-01-03", "2026-03-01T09:00:00"),
    (2, 1, 900, "paid", "2026-01-09", "2026-03-01 12:30"),
    (3, 2, 350, "paid", "2026-02-01", "2026-03-02"),
    (4, 2, None, "50% off", "2026-02-02", None),
]


@pytest.fixture(scope="module")
def database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript(
        """
        CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT);
        CREATE TABLE order_items (id INTEGER PRIMARY KEY, customer INT, unitPrice INT, status TEXT,
            ordered_at TEXT, due DATE);
        INSERT INTO customers VALUES (1, 'Ada', 'Paris'), (2, 'Bob', 'Rome');
        """
    )
    connection.executemany("INSERT INTO order_items VALUES (?, ?, ?, ?, ?, ?)", ROWS)
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
        ("how many order items where unit price over 1,000", [(0,)]),
        ("list order items id where unit price over 0,300, sorted by id", [(2,), (3,)]),
        ("how many order items where unit price under 1 000?", [(3,)]),
        ("how many order items where unit price over -5", [(3,)]),
        ("how many order items where unit price over 299.5 and status is open.", [(1,)]),
        ("list order items id where unit price starts with 3", [(1,), (3,)]),
        ("list order items id where ordered at after 2026-01-09", [(3,), (4,)]),
        ("list order items id where ordered at until 2026-01", [(1,), (2,)]),
        ("list order items id where ordered at after 2026-01", [(3,), (4,)]),
        ("list order items id where due is 2026-03-01", [(1,), (2,)]),
        ("list order items id where due until 2026-03-01", [(1,), (2,)]),
        ("list order items id where due before 2026-03-01T12:30", [(1,)]),
        ("how many order items where status is PAID", [(2,)]),
        ("list order items id where status is not Paid", [(1,), (4,)]),
        ("list order items status where status is 50% off!", [("50% off",)]),
        ("list customers name where name is the ada", [("Ada",)]),
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
        (
            "how many order items where unit price over 1k",
            "'1k' is no number, and 'unitPrice' is a column of",
        ),
        ("how many order items where unit price over 10 eur", "'10 eur' is no number"),
        ("how many order items where unit price over abc", "'abc' is no number"),
        ("how many order items where unit price is 1,00", "'1,00' is no number"),
        ("how many order items where unit price over €5", "'€5' is no number"),
        ("how many order items where unit price over 5%", "'5%' is no number"),
        ("how many order items where unit price over - 5", "'- 5' is no number"),
        ("how many order items where unit price over .5", "'.5' is no number"),
        ("how many order items where unit price between 1 and 500", "'between 1' is no number"),
        ("how many order items where unit price contains 1k", "'1k' is no number"),
        ("how many order items where due after 1.2.2026", "no date, and 'due' is a column of dates"),
        ("how many order items where due is yesterday", "'yesterday' is no date"),
        ("how many order items where ordered at after 1.2.2026", "'1.2.2026' is no date"),
        ("how many order items where ordered at after 2026-02-30", "'2026-02-30' is no date"),
        (
            "how many order items where status over 300",
            "'300' is no date, and only dates are before or after",
        ),
        ("top -1 customers by id", "'-1' is no table"),
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
