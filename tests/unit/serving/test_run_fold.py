"""Questions as requesters see them."""

from __future__ import annotations

import pytest

from noesium_stream.serving.run_fold import MOST_TEXT, shown_question


def test_a_question_about_a_call_shows_the_tool_and_its_arguments() -> None:
    asked = {"tool": "send", "arguments": {"to": "ada", "text": "a\u202eb\n"}, "reason": "internal"}
    assert shown_question(asked) == r'May send be called with {"to": "ada", "text": "a\u202eb\n"}?'


def test_arguments_that_are_cut_say_so() -> None:
    shown = shown_question({"tool": "send", "arguments": {"text": "x" * 10_000}})
    assert len(shown) == MOST_TEXT
    assert shown.endswith("x … (there is more of it)")


@pytest.mark.parametrize("question", [{"tool": "send", "asks": {}}, {"tool": 7, "arguments": {}}, 7, None])
def test_what_else_a_question_holds_is_not_shown(question: object) -> None:
    assert shown_question(question) == "The run asks a question."
