"""The order of what was found, and how probable an answer is."""

from __future__ import annotations

from typing import Any

import pytest

from agents.researcher.weighing import (
    ANSWERS,
    COMES_CLOSE,
    KEPT,
    coverage,
    outcome_of,
    probability,
    sentence,
    weigh,
)
from tests.support.found import passage, unit

QUERY = "What ends the lease?"


def texts(weighed: dict[str, Any]) -> list[str]:
    return [one["text"] for one in weighed["evidence"]]


def outcome(query: str, *texts: str) -> str:
    found: str = weigh([query], [[passage(text, path=str(n)) for n, text in enumerate(texts)]])["outcome"]
    return found


def test_the_order_of_the_librarian_is_kept() -> None:
    found = [passage("weak", coverage=0.1), passage("strong", coverage=1.0), passage("middle", coverage=0.5)]
    assert texts(weigh([QUERY], [found])) == ["weak", "strong", "middle"]


def test_of_several_queries_the_passages_take_turns() -> None:
    one = [passage("a"), passage("b"), passage("c")]
    two = [passage("x"), passage("b")]
    assert texts(weigh(["first", "second"], [one, two])) == ["a", "x", "b", "c"]


def test_what_says_the_same_as_one_before_it_is_left_out() -> None:
    text = "The lease of a worker lasts 30 seconds and is renewed every ten."
    found = [passage(text), passage(text, path="b.md"), passage("Red apples.", path="c.md")]
    assert [one["path"] for one in weigh([QUERY], [found])["evidence"]] == ["a.md", "c.md"]


def test_no_more_than_some_passages_are_kept() -> None:
    found = [passage(f"word{number}") for number in range(KEPT + 5)]
    assert len(weigh([QUERY], [found])["evidence"]) == KEPT


@pytest.mark.parametrize(
    ("probable", "expected"),
    [
        (1.0, "answer"),
        (ANSWERS, "answer"),
        (ANSWERS - 1e-9, "close"),
        (COMES_CLOSE, "close"),
        (COMES_CLOSE - 1e-9, "nothing"),
        (0.0, "nothing"),
    ],
)
def test_the_outcome_changes_at_two_probabilities(probable: float, expected: str) -> None:
    assert outcome_of(probable) == expected


@pytest.mark.parametrize(("covered", "expected"), [(1.0, "answer"), (0.6, "close"), (0.1, "nothing")])
def test_the_outcome_follows_the_share_of_the_words(covered: float, expected: str) -> None:
    weighed = weigh([QUERY], [[passage("It ends.", coverage=covered)]])
    assert weighed["outcome"] == expected == outcome_of(weighed["probability"])


def test_the_first_passage_counts_twice_and_the_fifth_not_at_all() -> None:
    shares = [0.2, 0.6, 0.1, 0.1, 1.0]
    found = [passage(str(share), coverage=share) for share in shares]
    assert coverage(found) == pytest.approx(0.4)
    assert probability(found) == probability(found[:4])


def test_more_coverage_is_never_less_probable() -> None:
    found = [probability([passage("x", coverage=share / 20)]) for share in range(21)]
    assert found == sorted(found)
    assert 0 < found[0] < COMES_CLOSE < ANSWERS < found[-1] < 1


def test_words_that_one_sentence_speaks_of_are_more_probable_than_scattered_ones() -> None:
    scattered = passage(unit("Ends.", coverage=0.5), unit("The lease.", 2, coverage=0.5), coverage=1.0)
    together = passage(unit("It ends.", coverage=0.5), unit("The lease ends.", 2, coverage=1.0), coverage=1.0)
    assert sentence([scattered]) == 0.5
    assert sentence([together, scattered]) == 1.0, "only the first passage's counts"
    assert outcome_of(probability([scattered])) == "close"
    assert outcome_of(probability([together])) == "answer"


def test_nothing_found_is_nothing() -> None:
    for found in ([], [[]], [[], []]):
        weighed = weigh([QUERY], found)
        assert weighed == {"evidence": [], "probability": 0.0, "outcome": "nothing"}


def test_of_several_questions_the_least_probable_counts() -> None:
    strong, weak = [passage("a", coverage=1.0)], [passage("b", coverage=0.5)]
    both = weigh(["first", "second"], [strong, weak])
    assert both["outcome"] == "close"
    assert both["probability"] == weigh(["second"], [weak])["probability"]


def test_a_refined_query_takes_the_place_of_its_query_only_if_it_finds_better() -> None:
    strong, weak = [passage("a", coverage=1.0)], [passage("b", coverage=0.5)]
    assert texts(weigh([QUERY], [weak, strong])) == ["a"]
    assert texts(weigh([QUERY], [strong, weak])) == ["a"]


@pytest.mark.parametrize(
    "question",
    ["How many leases end?", "How long is it?", "When did it end?", "Which version has it?", "How much?"],
)
def test_a_question_for_a_number_is_at_most_close_without_one(question: str) -> None:
    assert outcome(question, "It ends with the lease.", "It is red.", "It has 30.") == "close"
    assert outcome(question, "It ends with the lease.", "It lasts 30 seconds.") == "answer"
    assert outcome(question, "It lasts thirty, and never more than forever.") == "answer"


def test_without_a_number_that_was_asked_for_an_answer_is_barely_probable() -> None:
    red, other = passage("It is red.", coverage=1.0), passage("It is an apple.", coverage=0.0)
    assert weigh(["How many are red?"], [[red]])["probability"] == COMES_CLOSE
    assert weigh(["How many are red?"], [[other]])["probability"] < COMES_CLOSE


def test_one_question_for_a_number_without_one_makes_all_of_them_close() -> None:
    red, none = [passage("It is red.")], [passage("It is a lease.")]
    assert weigh(["What is red?", "How many leases are there?"], [red, none])["outcome"] == "close"


def test_a_question_for_no_number_needs_none() -> None:
    assert outcome("How does it end?", "With the lease.") == "answer"


def test_code_that_asks_the_question_does_not_answer_it() -> None:
    asks = unit('ask("What ends the lease?")', kind="code", coverage=1.0)
    tells = unit("Death ends it.", 3, coverage=0.3)
    weighed = weigh([QUERY], [[passage(asks, path="test.py"), passage(asks, tells, path="b.md")]])
    [left] = weighed["evidence"]
    assert (left["path"], left["units"], left["coverage"]) == ("b.md", [tells], 0.3)
    assert weighed["outcome"] == "close"
    assert outcome(QUERY, "What ends the lease? Death does.") == "answer", "prose may ask and then answer"
