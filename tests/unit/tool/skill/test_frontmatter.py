"""The front matter of a SKILL.md: bounded YAML of texts, with lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.tool.skill.frontmatter import MAX_FRONT_MATTER, FrontMatter, parse_front_matter


def parsed(matter: str) -> FrontMatter:
    return parse_front_matter(f"---\n{matter}\n---\nbody\n")


def test_fields_have_texts_and_lines() -> None:
    found = parsed("name: a\ndescription: >\n  two\n  lines\nmetadata:\n  version: 1.0\n  on: yes")
    assert found.problems == []
    assert found.fields == {
        "name": "a",
        "description": "two lines\n",
        "metadata": {"version": "1.0", "on": "yes"},
    }
    assert found.lines == {
        "name": 2,
        "description": 3,
        "metadata": 6,
        "metadata.version": 7,
        "metadata.on": 8,
    }
    assert (found.body, found.body_line) == ("body\n", 10)


def test_a_fence_within_the_text_is_not_its_end() -> None:
    found = parse_front_matter("---\ndescription: a --- b\n---\nx\n---\ny")
    assert found.fields == {"description": "a --- b"}
    assert found.body == "x\n---\ny"


def test_windows_lines_and_a_byte_order_mark_are_read() -> None:
    found = parse_front_matter("\ufeff---\r\nname: a\r\n---\r\nbody")
    assert (found.fields, found.body, found.problems) == ({"name": "a"}, "body", [])


@pytest.mark.parametrize(
    ("matter", "line", "said"),
    [
        ("a: 1\nb: [1, 2", 3, "no YAML"),
        ("a: &x 1\nb: *x", 2, "anchors and aliases"),
        ("a: 1\nb: *x", 3, "anchors and aliases"),
        ("a: 1\na: 2", 3, "a is given twice"),
        ("metadata:\n  k: 1\n  k: 2", 4, "metadata.k is given twice"),
        ("metadata:\n  k: [1]", 3, "metadata.k is no text"),
        ("- a", 2, "no mapping"),
        ("", 2, "no mapping"),
        ("? [a]\n: b", 2, "is no text"),
        ("a: " + "[" * 5_000, 2, "nested too deep"),
        ("a: x\x00y", 1, "no YAML"),
        ("a: " + "x" * MAX_FRONT_MATTER, 1, "more than 16,384 characters"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(matter: str, line: int, said: str) -> None:
    (problem,) = parsed(matter).problems
    assert problem.line == line
    assert said in problem.message


def test_tags_have_no_effect() -> None:
    found = parsed("a: !!python/object/apply:os.system [echo]\nb: !!python/name:os.system x")
    assert found.fields == {"a": None, "b": "x"}


@pytest.mark.parametrize("text", ["", "name: a", "--- x\n", "---\nname: a\n"])
def test_a_text_without_a_front_matter_has_one_problem(text: str) -> None:
    (problem,) = parse_front_matter(text).problems
    assert problem.line == 1


@given(st.text(max_size=300))
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = parsed(text)
    assert all(problem.line is None or problem.line >= 1 for problem in found.problems)
