"""The tables that the bench prints: the median of the rounds, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

Found = Mapping[str, Mapping[str, Sequence[float]]]
"""By system and column, a value per round."""

COLUMNS: Mapping[str, str] = {
    "runs": "runs/s, started and awaited",
    "bulk": "runs/s, in bulk",
    "lone": "ten steps, p50 ms",
    "first": "after SIGKILL, first step, s",
    "complete": "all complete, s",
    "disk": "disk, times the messages",
}
HANDLER_COLUMNS: Mapping[str, str] = {
    "count": "keyed count, events/s",
    "count_client": "its processes, CPU s per million",
    "count_broker": "the broker, CPU s per million",
    "sum": "decoded sum, events/s",
    "sum_client": "its processes, CPU s per million",
    "sum_broker": "the broker, CPU s per million",
}
ABSENT = "–"


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(
    first: str, columns: Mapping[str, str], systems: Mapping[str, tuple[str, str]], found: Found
) -> list[str]:
    """Lines of a table: a row for each system that has a value.

    Args:
        first: the title of the first column.
        columns: titles by name; a column without any value is left out.
        systems: label and durability by name, in the order of the rows.
        found: values by system and column.
    """
    shown = [name for name in columns if any(name in found.get(system, {}) for system in systems)]
    rows = [[first, *(columns[name] for name in shown), "durability"]]
    rows.append(["---", *("--:" for _ in shown), "---"])
    for name, (label, durability) in systems.items():
        values = found.get(name, {})
        if any(column in values for column in shown):
            cells = [number(median(values[one])) if one in values else ABSENT for one in shown]
            rows.append([label, *cells, durability])
    return [f"| {' | '.join(row)} |" for row in rows] if len(rows) > 2 else []
