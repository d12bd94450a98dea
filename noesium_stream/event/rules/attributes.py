"""Search attributes of a run: checked when they are set, folded when runs are listed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from noesium_stream.clock import to_ms
from noesium_stream.errors import ConfigError
from noesium_stream.event.envelope_fields import MAX_INT, short
from noesium_stream.event.standard.attributes import (
    ATTRIBUTE_NAME,
    MAX_ATTRIBUTE_NAME,
    MAX_ATTRIBUTE_TEXT,
    MAX_ATTRIBUTES,
    MAX_NUMBER,
)

SCHEDULE: Final = "schedule"
"""The attribute of a run that a schedule has started: the schedule's name."""

RESERVED: Final = frozenset(
    {
        *("run", "agent", "version", "status", "parent", "by", "fairness_key"),
        *("requested", "started", "ended", "error", SCHEDULE, "input"),
        *("and", "or", "not", "in", "is", "null", "true", "false"),
    }
)
"""Names that a condition on runs understands by itself: no attribute has one, but the schedule's."""

AttributeValue = str | bool | int | float | datetime | None
"""A value as a program gives it; None takes the attribute away."""

_NAME: Final = re.compile(ATTRIBUTE_NAME)
_WHOLE: Final = re.compile(r"-?[0-9]{1,16}")
_FRACTION: Final = re.compile(r"-?[0-9]{1,16}\.[0-9]{1,16}")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:T|$)")


def checked_attributes(given: Mapping[str, AttributeValue]) -> dict[str, Any]:
    """Attributes as JSON values: a time is `{"time_ms": …}`.

    Raises:
        ConfigError: a name or a value is none, or there are too many; names the attribute.
    """
    if len(given) > MAX_ATTRIBUTES:
        raise ConfigError(f"{len(given)} attributes are too many: a run has at most {MAX_ATTRIBUTES}.")
    return {_checked_name(name): _checked_value(name, value) for name, value in given.items()}


def check_count(now: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Refuse changes after which a run would have too many attributes.

    Raises:
        ConfigError: names the limit.
    """
    gone = {name for name, value in changes.items() if value is None}
    count = len((now.keys() | changes.keys()) - gone)
    if count > MAX_ATTRIBUTES:
        raise ConfigError(
            f"The run would have {count} attributes; it has at most {MAX_ATTRIBUTES}.",
            hint="Take one away by setting it to None.",
        )


def parse_attribute(text: str) -> tuple[str, AttributeValue]:
    """Read `NAME=VALUE`: a number, true, false, a date and a time are no texts, unless they stand in quotes.

    Raises:
        ConfigError: it has another form.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{short(text)} is no attribute.", hint="Say it as NAME=VALUE: customer=7.")
    name, value = name.strip(), value.strip()
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return name, value[1:-1]
    if value in ("true", "false"):
        return name, value == "true"
    if _WHOLE.fullmatch(value):
        return name, int(value)
    if _FRACTION.fullmatch(value):
        return name, float(value)
    if _DATE.match(value):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return name, value
        return name, moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return name, value


def _checked_name(name: str) -> str:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{short(str(name))} cannot name an attribute.",
            hint=f"Use letters, digits and _, no digit first, at most {MAX_ATTRIBUTE_NAME} of them.",
        )
    if name.lower() in RESERVED:
        raise ConfigError(
            f"No attribute can be called {name}: a condition on runs has a meaning of its own for it.",
            hint=f"The reserved names: {', '.join(sorted(RESERVED))}.",
        )
    return name


def _checked_value(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if len(value) > MAX_ATTRIBUTE_TEXT:
            raise ConfigError(
                f"The attribute {name} has {len(value):,} characters.",
                hint=f"An attribute has at most {MAX_ATTRIBUTE_TEXT:,}; what is longer is input.",
            )
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"The text of the attribute {name} is not valid Unicode.") from None
        return value
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(
                f"The time of the attribute {name} has no time zone.", hint="Give one: tzinfo=UTC."
            )
        return {"time_ms": to_ms(value)}
    if isinstance(value, int | float):
        if not abs(value) <= (MAX_INT if isinstance(value, int) else MAX_NUMBER):  # a NaN is not
            raise ConfigError(f"The number of the attribute {name} is not a JSON number of every program.")
        return value
    raise ConfigError(
        f"The attribute {name} is a {type(value).__name__}.",
        hint="It takes a text, a number, a boolean, an aware datetime, or None to take it away.",
    )


def with_attributes(now: Mapping[str, Any], changes: Any) -> dict[str, Any]:
    """The attributes of a run after some were set; a run keeps its first `MAX_ATTRIBUTES`.

    A program that wrote past the check loses what is beyond them, and nothing else.
    """
    found = dict(now)
    if not isinstance(changes, dict):
        return found
    for name, value in changes.items():
        if value is None:
            found.pop(name, None)
        elif name in found or len(found) < MAX_ATTRIBUTES:
            found[name] = value
    return found
