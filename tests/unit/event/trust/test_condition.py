"""Conditions: what they name, and what cannot be judged."""

from __future__ import annotations

import pytest

from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.condition import holds, judged, names_in


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ("n > 1", True),
        ("n > 2", False),
        ("absent > 1", None),
        ("name > 1", None),
        ("n", None),
        ("flag and n == 2", True),
        ("not flag", False),
    ],
)
def test_a_condition_that_cannot_be_judged_is_neither_true_nor_false(
    condition: str, outcome: bool | None
) -> None:
    arguments = {"n": 2, "name": "x", "flag": True}
    assert judged(condition, arguments) is outcome
    assert holds(condition, arguments) is (outcome is not False)


def test_the_names_of_a_condition_are_its_arguments() -> None:
    condition = 'len(a.b) > 1 and lower(c) in ["d", e] or not true and f == null'
    assert names_in(condition) == {"a", "c", "e", "f"}
    with pytest.raises(ConfigError):
        names_in("a(")
