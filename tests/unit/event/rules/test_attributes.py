"""Search attributes: their types and bounds, and the fold that keeps them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import ConfigError, EventValidationError
from noesium_stream.event import AgentRef, standard_catalogue
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.rules.attributes import (
    check_count,
    checked_attributes,
    parse_attribute,
    with_attributes,
)
from noesium_stream.event.standard import AttributesSet


def test_each_type_has_a_json_form() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert checked_attributes({"a": "x", "b": 7, "c": 0.5, "d": True, "e": noon, "f": None}) == {
        **{"a": "x", "b": 7, "c": 0.5, "d": True, "f": None},
        "e": {"time_ms": 1_772_366_400_000},
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"": 1}, "cannot name"),
        ({"a b": 1}, "cannot name"),
        ({"9a": 1}, "cannot name"),
        ({"a" * 65: 1}, "cannot name"),
        ({"a\n": 1}, "cannot name"),
        ({"status": "x"}, "status"),
        ({"Schedule": "x"}, "Schedule"),
        ({"a": "x" * 1_001}, "1,001 characters"),
        ({"a": "\ud800"}, "Unicode"),
        ({"a": float("nan")}, "JSON number"),
        ({"a": 2**53}, "JSON number"),
        ({"a": [1]}, "is a list"),
        ({"a": datetime(2026, 3, 1)}, "no time zone"),  # noqa: DTZ001 - that is the fault
        ({f"a{n}": n for n in range(51)}, "51 attributes"),
    ],
)
def test_what_is_no_attribute_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        checked_attributes(given)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=7", 7),
        ("a=-0.5", -0.5),
        ("a=true", True),
        ("a=seven", "seven"),
        ("a='7'", "7"),
        ('a="true"', "true"),
        ("a = b=c", "b=c"),
        ("a=", ""),
        ("a=2026-03-01", datetime(2026, 3, 1, tzinfo=UTC)),
        ("a=2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("a=2026-99-01", "2026-99-01"),
    ],
)
def test_a_command_line_gives_typed_values(text: str, value: Any) -> None:
    assert parse_attribute(text) == ("a", value)


def test_a_run_keeps_what_was_set_last_and_at_most_fifty() -> None:
    assert with_attributes({"a": 1, "b": 2}, {"a": None, "c": 3}) == {"b": 2, "c": 3}
    assert with_attributes({"a": 1}, ["no", "mapping"]) == {"a": 1}
    full = {f"a{n}": n for n in range(50)}
    assert with_attributes(full, {"more": 1, "a0": "new"}) == {**full, "a0": "new"}
    check_count(full, {"a0": None, "more": 1})
    with pytest.raises(ConfigError, match="51 attributes"):
        check_count(full, {"more": 1})


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"a b": 1},
        {"a": "x" * 1_001},
        {"a": [1]},
        {"a": {"time_ms": "noon"}},
        {"a": {"time_ms": 2**53}},
        {f"a{n}": n for n in range(51)},
    ],
)
def test_the_log_refuses_what_is_out_of_bounds(attributes: dict[str, Any]) -> None:
    sound = root_event(AttributesSet(attributes={"a": 1}), AgentRef("a", "a"), VirtualClock())
    standard_catalogue().validate(sound)
    with pytest.raises(EventValidationError):
        standard_catalogue().validate(sound.replace(payload={"attributes": attributes}))
