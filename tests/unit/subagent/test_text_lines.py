"""Programs that speak no protocol: templates of requests, and how answers are read."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import CapabilityInputError, ConfigError, SubagentProtocolError
from noesium_stream.subagent.lifecycle import Answer, Request
from noesium_stream.subagent.text_lines import TextLines


def request(**payload: Any) -> Request:
    return Request("r1", "calc.evaluate", payload, {})


def test_a_template_takes_texts_as_they_are_and_everything_else_as_json() -> None:
    protocol = TextLines("{a} + {b} # {c!j} {{}} {request_id}")
    asked = request(a="1", b=[2, None], c="x\ny")
    assert protocol.dialogue().ask(asked) == b'1 + [2,null] # "x\\ny" {} r1\n'
    assert protocol.fields == {"a", "b", "c"}


def test_without_a_template_the_input_is_a_line_of_json() -> None:
    assert TextLines().dialogue().ask(request(a="x\ny")) == b'{"a":"x\\ny"}\n'


@pytest.mark.parametrize("text", ["1\n2", "1\r2", "\x00", "\x1b[0m", "\u2028", "\x85", "\ud800"])
def test_a_text_that_would_be_more_than_a_part_of_the_line_is_refused(text: str) -> None:
    with pytest.raises(CapabilityInputError, match="'a' has a line break"):
        TextLines("{a}").dialogue().ask(request(a=text))


def test_a_missing_field_is_named() -> None:
    with pytest.raises(CapabilityInputError, match="lacks 'a'"):
        TextLines("{a}").dialogue().ask(request())


def test_an_answer_is_a_line() -> None:
    dialogue = TextLines("{a}").dialogue()
    dialogue.ask(request(a="1"))
    assert dialogue.hear(b"one ") == Answer("one ")
    dialogue.ask(request(a="1"))
    assert dialogue.hear(b"two") == Answer("two")


def test_an_answer_ends_with_the_line_that_has_the_request_s_id() -> None:
    dialogue = TextLines("{a}", end="end of {request_id}").dialogue()
    dialogue.ask(request(a="1"))
    assert [dialogue.hear(line) for line in (b"one", b"end of r2", b"end of r1")] == [
        None,
        None,
        Answer("one\nend of r2"),
    ]


def test_an_answer_is_read_as_json() -> None:
    dialogue = TextLines("{a}", answer="json", end="--").dialogue()
    dialogue.ask(request(a="1"))
    assert [dialogue.hear(line) for line in (b"[1,", b"2]", b"--")] == [None, None, Answer([1, 2])]
    dialogue.ask(request(a="1"))
    said = dialogue.hear(b"--")
    assert said is not None
    assert "is not JSON" in str(said.error)


@pytest.mark.parametrize(
    ("said", "number"),
    [(b"1024", 1024), (b" -.333 ", -0.333), (b"1.", 1.0), (b"2e3", 2000.0), (b"9" * 30, float("9" * 30))],
)
def test_an_answer_is_read_as_a_number(said: bytes, number: float) -> None:
    dialogue = TextLines("{a}", answer="number").dialogue()
    dialogue.ask(request(a="1"))
    assert dialogue.hear(said) == Answer(number)


@pytest.mark.parametrize(
    "said", [b"", b"nan", b"inf", b"1e999", b"0x10", b"1_000", "\u0661".encode(), b"one"]
)
def test_what_is_no_number_is_an_error_of_the_program(said: bytes) -> None:
    dialogue = TextLines("{a}", answer="number").dialogue()
    dialogue.ask(request(a="1"))
    answer = dialogue.hear(said)
    assert answer is not None
    assert "is no number" in str(answer.error)


def test_an_answer_that_matches_is_an_error_of_the_program() -> None:
    dialogue = TextLines("{a}", error="^(syntax )?error").dialogue()
    dialogue.ask(request(a="1"))
    assert dialogue.hear(b"syntax error: \x1b") == Answer(error="syntax error: \\x1b")


def test_what_it_prints_unasked_is_refused() -> None:
    dialogue = TextLines("{a}").dialogue()
    with pytest.raises(SubagentProtocolError, match="nobody asked for: welcome"):
        dialogue.hear(b"welcome")


def test_an_answer_that_is_not_utf_8_is_an_error_of_the_program() -> None:
    dialogue = TextLines("{a}").dialogue()
    dialogue.ask(request(a="1"))
    assert dialogue.hear(b"\xff") == Answer(error="gave an answer that is not UTF-8: \\xff")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"request": "{"}, "Single '{'|expected '}'"),
        ({"request": "{}"}, "no field of an input"),
        ({"request": "{a.b}"}, "no field of an input"),
        ({"request": "{a[0]}"}, "no field of an input"),
        ({"request": "{a!r}"}, "no field of an input"),
        ({"request": "{a:>5}"}, "no field of an input"),
        ({"end": "{a}"}, "as its only field"),
        ({"error": "("}, "no regular expression"),
        ({"answer": "xml"}, "it is text, json, number"),
    ],
)
def test_a_wrong_declaration_is_refused_when_it_is_made(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        TextLines(**wrong)
