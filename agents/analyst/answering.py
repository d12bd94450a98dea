"""The analyst's answers, as texts and as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agents.analyst.table import MAX_ROWS, text_table
from noesium_stream.escapes import escaped

CAN: Final = """Without a model I answer questions such as
  how many ORDERS by STATUS
  average of PRICE of ORDERS by month of ORDERED where STATUS is open
  top 5 CUSTOMERS by sum of PRICE
  list ORDERS where PRICE over 100 and CITY starts with Par sorted by PRICE descending
  which tables, columns of ORDERS
with the names of your tables and columns. For others name a model: --model PROVIDER:NAME"""
MAX_SHOWN_SQL: Final = 2_000


def answered(
    found: Mapping[str, Any], sql: str, parameters: Sequence[Any], chart: str | None, note: str | None
) -> dict[str, Any]:
    """The answer of rows: a table, how many there are, the statement, and the file with the chart."""
    rows = found["rows"]
    count = f"{len(rows):,} row" + ("" if len(rows) == 1 else "s")
    if found["truncated"]:
        count += " and more, or values that are cut"
    elif len(rows) > MAX_ROWS:
        count += f", of which {MAX_ROWS} are shown"
    values = f"  with {', '.join(escaped(repr(value)) for value in parameters)}" if parameters else ""
    lines = [text_table(found["columns"], rows), "", count, f"SQL    {shown_sql(sql)}{values}"]
    if chart is not None:
        lines.append(f"Chart  {escaped(chart)}")
    if note is not None:
        lines.append(note)
    return _result("answer", "\n".join(lines), sql, parameters, found, chart)


def about_schema(tables: Sequence[Mapping[str, Any]], table: str | None, *, cut: bool) -> dict[str, Any]:
    """The answer to a question about the schema itself."""
    if table is None:
        names, rows = ["table", "columns"], [[one["name"], len(one["columns"])] for one in tables]
    else:
        columns = next(one["columns"] for one in tables if one["name"] == table)
        names, rows = ["column", "type"], [[one["name"], one["type"]] for one in columns]
    note = "\n\nThere are more, which are not shown." if cut or len(rows) > MAX_ROWS else ""
    found = {"columns": names, "rows": rows, "truncated": cut}
    return _result("answer", text_table(names, rows) + note, None, (), found, None)


def cannot(reason: str, *, has_model: bool) -> dict[str, Any]:
    """The answer that there is none, and why."""
    text = f"I cannot answer this: {escaped(reason).rstrip('.')}."
    return _result("cannot", text if has_model else f"{text}\n\n{CAN}", None, (), None, None)


def refused(tries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer that no statement was accepted, with the last one and what was wrong with it."""
    last = tries[-1]
    count = "The statement was" if len(tries) == 1 else f"{len(tries)} statements were"
    text = f"{count} not accepted. The last error: {escaped(last['error'])}\nSQL    {shown_sql(last['sql'])}"
    return _result("refused", text, last["sql"], (), None, None)


def shown_sql(sql: str) -> str:
    """A statement on one line."""
    text = escaped(" ".join(sql.split()))
    return text if len(text) <= MAX_SHOWN_SQL else f"{text[: MAX_SHOWN_SQL - 1]}…"


def _result(
    outcome: str,
    text: str,
    sql: str | None,
    parameters: Sequence[Any],
    found: Mapping[str, Any] | None,
    chart: str | None,
) -> dict[str, Any]:
    return {
        "answer": text,
        "outcome": outcome,
        "sql": sql,
        "parameters": list(parameters),
        "columns": [] if found is None else found["columns"],
        "rows": [] if found is None else found["rows"],
        "truncated": found is not None and found["truncated"],
        "chart": chart,
    }
