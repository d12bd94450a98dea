"""A question that is understood: what is asked of one table, and the SQL that says the same. Pure.

Names become SQL as quoted identifiers of the schema, and values only as parameters, so that no word of a
question is ever a part of a statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Literal

Operator = Literal["=", "<>", "<", "<=", ">", ">=", "contains", "starts"]
Function = Literal["COUNT", "SUM", "AVG", "MIN", "MAX"]
PARTS: Final = {"year": 4, "month": 7, "day": 10}
"""Characters of a time as ISO 8601 has it, up to its year, month and day."""

_PART: Final = re.compile(r'"((?:[^"]|"")*)"|([\w$]+)')
_NUMERIC: Final = re.compile(r"int|real|floa|doub|num|dec|serial|money", re.IGNORECASE)
_DATED: Final = re.compile(r"date|timestamp", re.IGNORECASE)


class CannotAnswer(Exception):
    """A question that is not understood; the message says which part, in a sentence."""


class Comparison(Enum):
    """How a column is compared with a value.

    Attributes:
        TEXT: as texts, without regard to case.
        NUMBER: as numbers.
        MOMENT: as times of ISO 8601, up to the length of the value: a day is compared as a whole.
    """

    TEXT = auto()
    NUMBER = auto()
    MOMENT = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table of the schema."""

    table: str
    name: str
    type: str

    @property
    def is_number(self) -> bool:
        """Whether its type is one of numbers."""
        return _NUMERIC.search(self.type) is not None

    @property
    def is_date(self) -> bool:
        """Whether its type is one of dates, with or without a time of day."""
        return _DATED.search(self.type) is not None

    @property
    def is_time(self) -> bool:
        """Whether its type is one of times of day."""
        return self.type.lower().startswith("time") and not self.is_date


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on a column."""

    column: Column
    operator: Operator
    value: str | int | float
    comparison: Comparison = Comparison.TEXT


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of a table.

    Attributes:
        table: as the schema names it.
        function: what is computed; None: rows are listed.
        measure: of which column; None: of rows.
        group: for each value of this column; None: of the whole table.
        part: of the group's times: `year`, `month` or `day`; None: all of it.
        filters: all of them hold.
        columns: the columns of a list; none: all.
        order: by which column a list is sorted.
        descending: whether the largest comes first.
        limit: the most rows; None: as many as there are.
    """

    table: str
    function: Function | None = None
    measure: Column | None = None
    group: Column | None = None
    part: str | None = None
    filters: tuple[Filter, ...] = ()
    columns: tuple[Column, ...] = ()
    order: Column | None = None
    descending: bool = False
    limit: int | None = None


def sql_of(plan: Plan, dialect: str, keys: Sequence[str] = ()) -> tuple[str, list[Any]]:
    """The statement of a plan, and the values of its parameters.

    Args:
        plan: what is asked.
        dialect: `sqlite` or `postgres`.
        keys: the columns of the table's primary key, which decide between equal rows.
    """
    values: list[Any] = []

    def bound(value: Any) -> str:
        values.append(value)
        return "?" if dialect == "sqlite" else f"${len(values)}"

    conditions = [_condition(one, bound) for one in plan.filters]
    limited = plan.measure if plan.function is not None else plan.order
    if plan.limit is not None and plan.descending and limited is not None:
        conditions.append(f"{quoted(limited.name)} IS NOT NULL")  # NULL is no largest value
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    source = f"{quoted_table(plan.table)}{where}"
    limit = "" if plan.limit is None else f" LIMIT {int(plan.limit)}"
    if plan.function is None:
        return _listing(plan, source, keys) + limit, values
    measured = "COUNT(*)" if plan.measure is None else f"{plan.function}({quoted(plan.measure.name)})"
    name = quoted("count" if plan.measure is None else f"{plan.function.lower()} of {plan.measure.name}")
    if plan.group is None:
        return f"SELECT {measured} AS {name} FROM {source}{limit}", values
    grouped, label = quoted(plan.group.name), plan.group.name
    if plan.part is not None:
        grouped = f"substr(CAST({grouped} AS text), 1, {PARTS[plan.part]})"
        label = f"{plan.part} of {label}"
    order = f"2 {'DESC' if plan.descending else 'ASC'}, 1" if plan.limit is not None else "1"
    statement = f"SELECT {grouped} AS {quoted(label)}, {measured} AS {name} FROM {source} GROUP BY 1"
    return f"{statement} ORDER BY {order}{limit}", values


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def quoted_table(name: str) -> str:
    """A table as the schema names it, each part as an identifier of SQL."""
    return ".".join(quoted(one) for one in parts_of(name))


def parts_of(name: str) -> list[str]:
    """Schema and table, or the table alone, of a name as the schema has it."""
    return [plain or inner.replace('""', '"') for inner, plain in _PART.findall(name)]


def _listing(plan: Plan, source: str, keys: Sequence[str]) -> str:
    columns = ", ".join(quoted(one.name) for one in plan.columns) or "*"
    order = [] if plan.order is None else [f"{quoted(plan.order.name)}{' DESC' if plan.descending else ''}"]
    order += [quoted(key) for key in keys]
    return f"SELECT {columns} FROM {source}" + (f" ORDER BY {', '.join(order)}" if order else "")


def _condition(one: Filter, bound: Any) -> str:
    column = quoted(one.column.name)
    text = f"CAST({column} AS text)"
    if one.operator in ("contains", "starts"):
        escaped = re.sub(r"([\\%_])", r"\\\1", str(one.value))
        pattern = f"%{escaped}%" if one.operator == "contains" else f"{escaped}%"
        return f"lower({text}) LIKE lower({bound(pattern)}) ESCAPE '\\'"
    if one.comparison is Comparison.NUMBER:
        return f"{column} {one.operator} {bound(one.value)}"
    if one.comparison is Comparison.MOMENT:
        moment = f"substr({text}, 1, {len(str(one.value))})"
        if " " in str(one.value):
            moment = f"replace({moment}, 'T', ' ')"
        return f"{moment} {one.operator} {bound(one.value)}"
    return f"lower({text}) {one.operator} lower({bound(one.value)})"
