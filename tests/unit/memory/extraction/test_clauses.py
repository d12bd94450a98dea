"""Sentences, clauses and statements of a text."""

from __future__ import annotations

import pytest

from noesium_stream.memory.extraction.clauses import clauses, spans, statements, without_opening


def is_statement(clause: str) -> bool:
    return (clause.lower().startswith(("i ", "my ")) and " is " in clause) or "like" in clause


def test_sentences_end_at_signs_and_lines_and_not_within_words() -> None:
    text = "See a.b! My v1.2; is it?\nYes"
    assert [text[begin:end] for begin, end in spans(text)] == ["See a.b!", " My v1.2;", " is it?", "Yes"]


def test_clauses_begin_with_the_person_after_a_conjunction() -> None:
    said = "It rained, and I slept but my cat and the dog did not"
    assert clauses(said) == ["It rained,", "I slept", "my cat and the dog did not"]


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("my cat is in, I like tea and my dog is out", ["my cat is in", "I like tea", "my dog is out"]),
        ("I like my cat and my dog", ["I like my cat and my dog"]),
        ("I like my cat, my dog and my fish is red", ["I like my cat, my dog", "my fish is red"]),
        ("she says, I like tea", ["she says, I like tea"]),
        ("", [""]),
    ],
)
def test_what_is_no_statement_stays_with_the_one_before(sentence: str, found: list[str]) -> None:
    assert statements(sentence, is_statement) == found


def test_words_that_open_a_clause_are_left_out() -> None:
    assert without_opening(" Well, and I like tea. ") == "I like tea"
