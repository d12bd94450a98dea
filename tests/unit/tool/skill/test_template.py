"""References of a skill's steps: values, fields, items and texts; nothing is computed."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.errors import ConfigError, ToolExecutionError
from noesium_stream.tool.skill.template import check_template, filled

SCOPE = {
    "input": {"topic": "rain", "n": 3, "on": True, "gone": None},
    "search": {"hits": [{"url": "a"}, {"url": "b", "tags": ["x"]}]},
}
KNOWN = frozenset(SCOPE)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("$input.topic", "rain"),
        ("$input", SCOPE["input"]),
        ("$search.hits[1].tags[0]", "x"),
        ("$search.hits[9]?", None),
        ("$absent.x?", None),
        ("On ${input.topic}, ${input.n} times: ${input.on}${input.gone}", "On rain, 3 times: true"),
        ("${input.topic}", "rain"),
        ("$$5", "$5"),
        ("costs $5", "costs $5"),
        ("$${input.topic}", "${input.topic}"),
        ({"a": ["$input.n", 1, None, {"b": "$input.on"}]}, {"a": [3, 1, None, {"b": True}]}),
        (("$input.n",), [3]),
        ("$5", "$5"),
    ],
)
def test_references_are_replaced(template: Any, value: Any) -> None:
    check_template(template, KNOWN | {"absent"}, "It")
    assert filled(template, SCOPE, "It") == value


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("$input.absent", r"there is no \$input\.absent here"),
        ("$search.hits[2]", "there is no"),
        ("$input.topic.x", "there is no"),
        ("$input.topic[0]", "there is no"),
        ("x ${search.hits}", "no text that can be put"),
    ],
)
def test_what_is_not_there_is_an_error_that_names_it(template: Any, said: str) -> None:
    check_template(template, KNOWN, "It")
    with pytest.raises(ToolExecutionError, match=said):
        filled(template, SCOPE, "It")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("$input.topic and more", "no reference"),
        ("$input.__class__()", "no reference"),
        ("$other.x", "refers to other, which is not there"),
        (["${other}"], "refers to other"),
        ("${input.topic", "cannot be read"),
        ("${input[x]}", "cannot be read"),
        ("${1 + 1}", "cannot be read"),
    ],
)
def test_what_is_no_reference_is_refused_before_anything_runs(template: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_template(template, KNOWN, "It")


def test_attributes_of_python_are_out_of_reach() -> None:
    assert filled("$input.__class__?", SCOPE, "It") is None
    assert filled("$search.hits.append?", SCOPE, "It") is None


def test_a_template_that_is_too_deep_is_refused() -> None:
    deep: Any = "x"
    for _ in range(30):
        deep = [deep]
    with pytest.raises(ConfigError, match="nested too deep"):
        check_template(deep, KNOWN, "It")


@given(st.text(alphabet="${}input.topic[0]? ", max_size=40))
def test_any_text_is_refused_or_filled(text: str) -> None:
    try:
        check_template(text, KNOWN, "It")
    except ConfigError:
        return
    with contextlib.suppress(ToolExecutionError):
        filled(text, SCOPE, "It")
