#!/usr/bin/env python3
"""Sum up the orders of one month: report.py ORDERS.csv YYYY-MM [REPORT.md]."""

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path
from string import Template
from typing import Any

TEMPLATE = Path(__file__).parents[1] / "assets" / "report.md"


def summed(orders: Path, month: str) -> dict[str, Any]:
    """Totals of a month: orders, cents, those that were skipped, and orders and cents of each item."""
    items: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    skipped = 0
    with orders.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if not row["date"].startswith(f"{month}-"):
                continue
            if not row["cents"].strip():
                skipped += 1
                continue
            items[row["item"]][0] += 1
            items[row["item"]][1] += int(row["cents"])
    best = sorted(items, key=lambda item: (-items[item][1], item))
    return {
        "month": month,
        "orders": sum(count for count, _ in items.values()),
        "cents": sum(cents for _, cents in items.values()),
        "skipped": skipped,
        "items": [{"item": item, "orders": items[item][0], "cents": items[item][1]} for item in best],
    }


def report(totals: dict[str, Any]) -> str:
    """The report in Markdown."""
    rows = [f"| {one['item']} | {one['orders']} | {one['cents'] / 100:.2f} |" for one in totals["items"]]
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        month=totals["month"],
        orders=totals["orders"],
        total=f"{totals['cents'] / 100:.2f}",
        rows="\n".join(rows),
    )


def main(arguments: list[str]) -> int:
    """Print the totals, and write the report."""
    if len(arguments) not in (2, 3):
        sys.stderr.write(f"{__doc__}\n")
        return 2
    totals = summed(Path(arguments[0]), arguments[1])
    if len(arguments) == 3:
        target = Path(arguments[2])
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(report(totals), encoding="utf-8")
    sys.stdout.write(json.dumps(totals) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
