"""Durations as people type them: `90s`, `10m`, `1h30m`, `2d`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

import click

_UNITS: Final = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_SPAN: Final = re.compile(r"(?:\d+(?:\.\d+)?[dhms])+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([dhms])")


class Span(click.ParamType[timedelta]):
    """Click type of a duration greater than zero; its value is a `timedelta`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """See `click.ParamType.convert`."""
        if isinstance(value, timedelta):
            return value
        text = str(value).strip()
        if _SPAN.fullmatch(text) is None:
            self.fail(f"{text!r} is no length of time; say it as 90s, 10m, 1h30m or 2d.", param, ctx)
        try:
            span = sum(
                (timedelta(**{_UNITS[unit]: float(n)}) for n, unit in _PART.findall(text)), timedelta()
            )
        except OverflowError:
            self.fail(f"{text!r} is too long.", param, ctx)
        if not timedelta() < span <= timedelta(days=36_500):
            self.fail(f"{text!r} is not between nothing and a hundred years.", param, ctx)
        return span
