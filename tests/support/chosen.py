"""Half of the heavy tests by default: each on one of two logs in turn; the others with `-m soak`."""

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


def one_of(several: int, names: Iterable[str]) -> list[Any]:
    """Parameters: every so many of the names, the others only if soaks are asked for."""
    return [
        pytest.param(name, marks=[pytest.mark.soak] if number % several else [])
        for number, name in enumerate(names)
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
