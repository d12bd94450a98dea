"""Conditions on runs and questions: on who runs, on the run's state, and on what it is about.

A name is one of `KEYS`, a search attribute of the run, or a field of its input: `customer`, or
`order.country` for one in another. With `input.` before it a field of the input is meant, whatever attributes
there are. See `where_expression` for the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from noesium_stream.client.views.runs import RunInfo
from noesium_stream.client.views.where_expression import (
    ANY_RUN,
    Combined,
    Comparison,
    Expression,
    Literal,
    Not,
    Time,
    all_of,
    parse_expression,
)
from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.agent_calls import FAIRNESS_KEY, input_of
from noesium_stream.event.rules.attributes import SCHEDULE
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.trust.speaking import principal_of

OPEN: Final = "open"
"""What the status of a run that has not ended equals, too."""
ENDED: Final = "ended"
STATUSES: Final = (
    *("requested", "deferred", "running", "waiting", "stranded", "compensating"),
    *ENDINGS.values(),
    OPEN,
    ENDED,
)

_TEXTS: Final[Mapping[str, str]] = {
    "run": "run_id",
    "agent": "agent_type",
    "version": "agent_version",
    "parent": "parent_run_id",
    "error": "error",
}
_TIMES: Final[Mapping[str, str]] = {
    "requested": "requested_ms",
    "started": "started_ms",
    "ended": "ended_ms",
}
_OF_COMMAND: Final = ("by", FAIRNESS_KEY)
"""Names that the command alone answers: who asked for the run, and in whose turn it starts."""
_STATUS: Final = "status"
KEYS: Final = (*_TEXTS, _STATUS, *_TIMES, *_OF_COMMAND, SCHEDULE)
_OF_INFO: Final = frozenset({*_TEXTS, *_TIMES, _STATUS, SCHEDULE})
_INPUT: Final = "input."

Conditions = str | Mapping[str, Any]
"""A condition as a text, or values by name, all of which count."""


def parse_where(given: Iterable[str]) -> Expression:
    """Read conditions, all of which have to hold.

    Raises:
        ConfigError: one is no condition, or it compares a status or a time with what is none.
    """
    return all_of(_checked(parse_expression(text)) for text in given)


def condition_of(where: Conditions | Expression | None) -> Expression:
    """A condition in each of its forms, as an expression.

    Raises:
        ConfigError: as `parse_where`; or a value of a mapping is no text, number, boolean or aware time.
    """
    if where is None:
        return ANY_RUN
    if isinstance(where, Expression):
        return where
    if isinstance(where, str):
        return parse_where((where,))
    return all_of(_checked(Comparison(name, "=", (_literal(name, value),))) for name, value in where.items())


def _literal(name: str, value: Any) -> Literal:
    if isinstance(value, str):
        return Literal(value)
    if isinstance(value, bool):
        return Literal(str(value).lower())
    if isinstance(value, int | float):
        return Literal(str(value))
    if isinstance(value, datetime) and value.tzinfo is not None:
        return Literal(value.isoformat())
    raise ConfigError(
        f"The condition on {name} is a {type(value).__name__}.",
        hint="Give a text, a number, a boolean or an aware datetime.",
    )


def _checked(expression: Expression) -> Expression:
    """Refuse comparisons that no run can ever fulfil: they are slips of the pen."""
    for comparison in _comparisons(expression):
        name, literals = comparison.name, comparison.literals
        if name == _STATUS and comparison.op in ("<", "<=", ">", ">="):
            raise ConfigError("A status has no order.", hint="Compare it by =, != or in.")
        for literal in literals:
            if name == _STATUS and literal.text not in STATUSES:
                raise ConfigError(
                    f"{literal.text!r} is no status of a run.", hint=f"It is one of {', '.join(STATUSES)}."
                )
            if name in _TIMES and literal.time is None:
                raise ConfigError(
                    f"{literal.text!r} is no time to compare {name} with.",
                    hint="Write it as 2026-03-01 or 2026-03-01T12:00:00Z; without a zone it is UTC.",
                )
    return expression


def _comparisons(expression: Expression) -> Iterable[Comparison]:
    if isinstance(expression, Comparison):
        yield expression
    elif isinstance(expression, Not):
        yield from _comparisons(expression.part)
    elif isinstance(expression, Combined):
        for part in expression.parts:
            yield from _comparisons(part)


def needs_status(expression: Expression) -> bool:
    """Whether the condition looks at the status, which depends on what a run waits for."""
    return _STATUS in expression.names


class Asked(NamedTuple):
    """What a command says: who asked for the run, in whose turn it starts, and its input."""

    by: str
    fairness_key: Any
    input: dict[str, Any]


def asked_of(command: EventEnvelope) -> Asked:
    """What the command of a run says."""
    fairness_key = (command.metadata or {}).get(FAIRNESS_KEY, command.producer.agent_id)
    return Asked(principal_of(command.producer), fairness_key, input_of(command.payload))


def from_command(names: Iterable[str], asked: Asked) -> dict[str, Any]:
    """The values of those names that the command of a run answers: of `by`, and of fields of its input."""
    return {name: _of_command(asked, name) for name in names if name not in _OF_INFO}


def fulfils(expression: Expression, info: RunInfo, of_command: Mapping[str, Any]) -> bool:
    """Whether a run fulfils a condition; `of_command` is what `from_command` found."""

    def value(name: str) -> Any:
        if name in _TEXTS:
            return getattr(info, _TEXTS[name])
        if name in _TIMES:
            ms = getattr(info, _TIMES[name])
            return None if ms is None else Time(ms)
        if name == _STATUS:
            waits = {"waiting"} if info.waits_for else set()
            return frozenset({info.status, OPEN if info.ended_ms is None else ENDED, *waits})
        if name in info.attributes and name not in _OF_COMMAND:
            return _value(info.attributes[name])
        return of_command.get(name)

    return expression.holds(value)


def shown_attribute(value: Any) -> Any:
    """An attribute for people and programs: a time as RFC 3339."""
    found = _value(value)
    if not isinstance(found, Time):
        return found
    try:
        return to_rfc3339(found.ms)
    except (ValueError, OverflowError, OSError):
        return found.ms


def _value(value: Any) -> Any:
    """The value of an attribute or a field of the input; None if it has parts."""
    if isinstance(value, dict):
        ms = value.get("time_ms") if len(value) == 1 else None
        return Time(ms) if type(ms) is int else None
    return value if isinstance(value, str | bool | int | float) else None


def _of_command(asked: Asked, name: str) -> Any:
    if name == "by":
        return asked.by
    if name == FAIRNESS_KEY:
        return asked.fairness_key
    found: Any = asked.input
    name = name.removeprefix(_INPUT)
    if name in found:
        return _plain(found[name])
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return _plain(found)


def _plain(found: Any) -> Any:
    return found if isinstance(found, str | bool | int | float) else None
