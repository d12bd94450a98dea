"""A part of the heavy tests by default: on one of two logs in turn, or some of many; all with soaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pytest

LOGS: Final = ("sqlite", "kafka")


def on_a_log_in_turn(names: Iterable[str]) -> list[Any]:
    """Parameters `name` and `log`: each name on both logs, on one of them only if soaks are asked for."""
    return [
        pytest.param(
            name, log, marks=[] if LOGS[number % 2] == log else [pytest.mark.soak], id=f"{name}-{log}"
        )
        for number, name in enumerate(names)
        for log in LOGS
    ]


def one_of(several: int, values: Iterable[Any]) -> list[Any]:
    """Parameters: one of so many values (a tuple is several), the others only if soaks are asked for."""
    return [
        pytest.param(
            *(value if isinstance(value, tuple) else (value,)),
            marks=[pytest.mark.soak] if number % several else [],
        )
        for number, value in enumerate(values)
    ]


def chosen(request: pytest.FixtureRequest, *names: str) -> list[tuple[Any, ...]]:
    """The values of these parameters of all tests of the module that are going to run, in order."""
    found: dict[tuple[Any, ...], None] = {}
    for item in request.session.items:
        if item.path == request.path and hasattr(item, "callspec"):
            given = item.callspec.params
            if all(name in given for name in names):
                found[tuple(given[name] for name in names)] = None
    return list(found)
