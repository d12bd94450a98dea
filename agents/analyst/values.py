"""Values of conditions: a column is compared with what its type holds, and with nothing else. Pure.

Decision record: a database compares a number with a text without an error, and its answer is wrong. So a
value that cannot be read as its column's type is refused, as every other word that is not understood.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from agents.analyst.plan import CannotAnswer, Column, Comparison, Filter, Operator
from noesium_stream.event.envelope_fields import short

_DIGITS: Final = r"[0-9]{1,18}|[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,3}(?: [0-9]{3}){1,5}"
_NUMBER: Final = re.compile(rf"[+-]?(?:{_DIGITS})(?:\.[0-9]{{1,18}})?")
_CLOCK: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?"
_TIME: Final = re.compile(_CLOCK)
_DATE: Final = re.compile(rf"([0-9]{{4}}-[0-9]{{2}})(-[0-9]{{2}}(?:[ T]{_CLOCK})?)?")
_ORDERING: Final[tuple[Operator, ...]] = ("<", "<=", ">", ">=")
_DATES: Final = "write dates as 2026-01-31, 2026-01 or 2026-01-31 10:30"


def filter_of(column: Column, operator: Operator, text: str) -> Filter:
    """The condition that a column has this relation to a value, which is given as a text.

    Raises:
        CannotAnswer: the column is not compared with such a value.
    """
    number = plain_number(text)
    if column.is_number or (not column.type and number is not None):
        return _of_number(column, operator, number, text)
    if operator in ("contains", "starts"):
        return Filter(column, operator, text)
    if column.is_time and _TIME.fullmatch(text) is None:
        raise CannotAnswer(
            f"{short(text)} is no time, and {short(column.name)} is a column of times; write 10:30"
        )
    if column.is_time:
        return Filter(column, operator, text, Comparison.MOMENT)
    if column.is_date or operator in _ORDERING:
        return _of_date(column, operator, text)
    return Filter(column, operator, text)


def plain_number(text: str) -> str | None:
    """A number without the separators of its thousands; None: it is no number.

    `1000`, `1,000`, `1 000`, `-2.5`: a comma or a space stands between groups of three digits, and a point
    before decimals.
    """
    signed = text.replace("\N{MINUS SIGN}", "-")
    if _NUMBER.fullmatch(signed) is None:
        return None
    return signed.replace(",", "").replace(" ", "").removeprefix("+")


def iso_date(text: str) -> str | None:
    """A month, a day or a minute as ISO 8601 has it, with a space before the time; None: it is none."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    month, day = found.groups()
    try:
        date.fromisoformat(f"{month}{(day or '-01')[:3]}")
    except ValueError:
        return None
    return text.replace("T", " ")


def _of_number(column: Column, operator: Operator, number: str | None, text: str) -> Filter:
    if number is None:
        raise CannotAnswer(
            f"{short(text)} is no number, and {short(column.name)} is a column of numbers; write 1000, "
            "1,000 or 2.5"
        )
    if operator in ("contains", "starts"):
        return Filter(column, operator, number if column.type else text)
    return Filter(column, operator, float(number) if "." in number else int(number), Comparison.NUMBER)


def _of_date(column: Column, operator: Operator, text: str) -> Filter:
    moment = iso_date(text)
    if moment is not None:
        return Filter(column, operator, moment, Comparison.MOMENT)
    name = short(column.name)
    if column.is_date:
        raise CannotAnswer(f"{short(text)} is no date, and {name} is a column of dates; {_DATES}")
    if not column.type:
        raise CannotAnswer(f"{short(text)} is neither a number nor a date; write 1000, or {_DATES}")
    raise CannotAnswer(
        f"{short(text)} is no date, and only dates are before or after others in {name}, a column of texts; "
        f"{_DATES}"
    )
