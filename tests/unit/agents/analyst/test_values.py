"""Values of conditions: a column is compared with what its type holds, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.analyst.plan import CannotAnswer, Column, Comparison, Operator
from agents.analyst.values import filter_of, iso_date, plain_number

WHOLE = st.integers(-(10**18) + 1, 10**18 - 1)
ORDER: list[Operator] = ["<", "<=", ">", ">="]


def column(type: str) -> Column:
    return Column("orders", "made", type)


@given(WHOLE)
def test_a_number_is_read_with_commas_with_spaces_and_without_them(number: int) -> None:
    for text in (f"{number}", f"{number:,}", f"{number:,}".replace(",", " ")):
        assert plain_number(text) == str(number)


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "1k", "abc", "1,00", "1,0000", "1,000 000", "1 00", "1.", ".5", "1e3", "0x10", "1_000"),
        *("1.2.2026", "1,5", "$5", "5%", "9" * 19, "\N{ARABIC-INDIC DIGIT THREE}", "- 5", "nan", "1\n000"),
    ],
)
def test_whatever_else_is_no_number(text: str) -> None:
    assert plain_number(text) is None


@given(st.text(max_size=20), st.sampled_from([*ORDER, "=", "<>"]), st.sampled_from(["INT", "numeric(9,2)"]))
def test_a_column_of_numbers_is_compared_with_numbers_or_not_at_all(
    text: str, operator: Operator, type: str
) -> None:
    try:
        read = filter_of(column(type), operator, text)
    except CannotAnswer:
        return
    assert read.comparison is Comparison.NUMBER
    assert isinstance(read.value, int | float)


@given(st.text(max_size=20), st.sampled_from(ORDER), st.sampled_from(["", "TEXT", "date", "uuid", "TIME"]))
def test_no_column_has_an_order_among_plain_texts(text: str, operator: Operator, type: str) -> None:
    try:
        read = filter_of(column(type), operator, text)
    except CannotAnswer:
        return
    assert read.comparison is not Comparison.TEXT


@given(st.datetimes())
def test_a_date_is_read_as_iso_8601_has_it(time: Any) -> None:
    assert iso_date(f"{time:%Y-%m-%d}".zfill(10)) == time.date().isoformat()
    minute = time.isoformat(timespec="minutes")
    assert iso_date(minute) == minute.replace("T", " ")
    assert iso_date(minute[:7]) == minute[:7]


@pytest.mark.parametrize(
    "text",
    ["2026", "2026-13", "2026-02-30", "2026-2-1", "1.2.2026", "02/01/2026", "2026-01-31 24:00", "today", ""],
)
def test_whatever_else_is_no_date(text: str) -> None:
    assert iso_date(text) is None


def test_a_column_of_times_of_day_is_compared_with_these() -> None:
    assert filter_of(column("time without time zone"), ">", "10:30").value == "10:30"
    with pytest.raises(CannotAnswer, match="'2026-01-31' is no time"):
        filter_of(column("TIME"), ">", "2026-01-31")


def test_a_column_without_a_type_is_compared_with_what_the_value_is() -> None:
    assert filter_of(column(""), ">", "1,000").value == 1000
    assert filter_of(column(""), ">", "2026-01-31").comparison is Comparison.MOMENT
    assert filter_of(column(""), "=", "tea").comparison is Comparison.TEXT
    with pytest.raises(CannotAnswer, match="'1k' is neither a number nor a date"):
        filter_of(column(""), ">", "1k")
