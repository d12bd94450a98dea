"""A duration is a `timedelta`, or a number of seconds."""

from __future__ import annotations

import inspect
import math
from datetime import timedelta
from typing import Any

import pytest

import noesium_stream
import noesium_stream.testing
from noesium_stream.durations import in_seconds
from noesium_stream.errors import ConfigError

UNITS = ("_ms", "_s", "_us", "_seconds", "_minutes", "_hours", "_days")


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [(timedelta(minutes=2), 120.0), (3, 3.0), (0.25, 0.25), (timedelta(0), 0.0), (-1, -1.0)],
)
def test_either_becomes_seconds(duration: Any, seconds: float) -> None:
    assert in_seconds(duration, "timeout") == seconds


@pytest.mark.parametrize("duration", ["5s", True, None, math.nan, math.inf])
def test_what_is_no_duration_is_refused_by_the_name_of_its_parameter(duration: Any) -> None:
    with pytest.raises(ConfigError, match=r"^timeout=.* is not a duration") as refused:
        in_seconds(duration, "timeout")
    assert refused.value.hint is not None


@pytest.mark.parametrize("duration", [0, timedelta(0), -1])
def test_one_that_has_to_be_above_zero_is_refused_if_it_is_not(duration: Any) -> None:
    with pytest.raises(ConfigError, match="not above zero"):
        in_seconds(duration, "ttl", positive=True)


def _parameters() -> list[str]:
    """The parameters of all functions, classes and methods that the package exports."""
    found = []
    modules = (noesium_stream, noesium_stream.testing)
    for name, exported in ((name, getattr(module, name)) for module in modules for name in module.__all__):
        callables = {name: exported}
        if inspect.isclass(exported):
            members = ((f"{name}.{key}", value) for key, value in vars(exported).items() if key[0] != "_")
            callables |= {key: value for key, value in members if inspect.isfunction(value)}
        for where, function in callables.items():
            try:
                found += [f"{where}({parameter})" for parameter in inspect.signature(function).parameters]
            except (TypeError, ValueError):
                continue
    return found


def test_no_parameter_of_the_public_api_has_a_unit_in_its_name() -> None:
    records = ("EventEnvelope", "DomainEvent.to_envelope", "Record")  # fields of records on the log
    views = (
        "RunInfo",
        "Wait",
        "Approval",
        "TreeRun",
        "UnresolvedEffect",
        "ScheduleInfo",
        "ConversationTurn",
        "UserMessage",
        "Goal",
        "Overdue",
    )  # moments, as the events have them
    settings = ("NoesiumConfig",)  # named as the variables of the environment
    named = {one.partition("(")[0] for one in _parameters() if one.removesuffix(")").endswith(UNITS)}
    assert named <= {*records, *views, *settings}
