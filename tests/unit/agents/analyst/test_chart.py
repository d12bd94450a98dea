"""Charts: which rows have one, and that no text of a database is more than text in it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.analyst.chart import MAX_POINTS, Chart, chart_of, number_of, svg_of
from agents.analyst.table import MAX_CELL, text_table

SVG = "{http://www.w3.org/2000/svg}"


def test_labels_with_numbers_are_bars_and_times_in_order_a_line() -> None:
    bars = chart_of("cents by item", ["item", "cents"], [["tea", 300], ["oil", "900.50"]])
    assert bars is not None
    assert (bars["kind"], bars["values"]) == ("bar", [300.0, 900.5])
    line = chart_of("by month", ["month", "count"], [["2026-01", 3], ["2026-02", 1]])
    assert line is not None
    assert line["kind"] == "line"


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [["tea", 1]],
        [["tea", "many"], ["oil", 1]],
        [["tea", None], ["oil", 1]],
        [["x", 1]] * (MAX_POINTS + 1),
    ],
)
def test_other_rows_have_no_chart(rows: list[list[Any]]) -> None:
    assert chart_of("", ["a", "b"], rows) is None


@given(
    st.lists(st.tuples(st.text(max_size=60), st.floats(allow_nan=False, allow_infinity=False)), min_size=1),
    st.text(max_size=200),
    st.sampled_from(["bar", "line"]),
)
def test_whatever_the_texts_are_the_file_is_a_drawing_that_loads_and_runs_nothing(
    points: list[tuple[str, float]], title: str, kind: str
) -> None:
    chart: Chart = {
        "kind": kind,
        "title": title,
        "labels": [label for label, _ in points],
        "values": [value if abs(value) <= 1e30 else 0.0 for _, value in points],
    }
    drawn = ElementTree.fromstring(svg_of(chart).encode())
    tags = {element.tag for element in drawn.iter()}
    assert tags <= {f"{SVG}{name}" for name in ("svg", "rect", "text", "path", "polyline")}
    assert not any("href" in name or name.startswith("on") for one in drawn.iter() for name in one.attrib)


def test_a_hostile_label_is_shown_as_it_is_written() -> None:
    label = "</text><script>alert(1)</script>\x1b[2J"
    chart: Chart = {"kind": "bar", "title": "x", "labels": [label, "b"], "values": [1.0, -2.0]}
    text = svg_of(chart)
    assert "<script" not in text
    assert "\x1b" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, None),
        (None, None),
        ("12.50", 12.5),
        ("1e3", 1000.0),
        ("9" * 400, None),
        ("nan", None),
        (10**40, None),
    ],
)
def test_a_number_is_what_can_be_drawn(value: Any, number: float | None) -> None:
    assert number_of(value) == number


@given(st.lists(st.lists(st.text(max_size=100), min_size=2, max_size=2), max_size=5))
def test_each_row_of_a_table_is_one_line_without_controls(rows: list[list[str]]) -> None:
    text = text_table(["a\nb", "\x1b[31mc"], rows)
    assert len(text.split("\n")) == len(rows) + 2
    assert all(character.isprintable() or character == "\n" for character in text if ord(character) < 0xA0)
    assert all(len(line) <= 2 * MAX_CELL + 2 for line in text.split("\n"))
