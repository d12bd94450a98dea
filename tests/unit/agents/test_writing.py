"""A model's answer: what it is asked, and which of its citations are believed."""

from __future__ import annotations

from typing import Any

import pytest

from agents.researcher.planning import plan
from agents.researcher.weighing import weigh
from agents.researcher.writing import answer_of_model, prompt_for
from tests.unit.agents.test_answering import passage

CORPUS = {"passages": 10, "counts": {}}
QUESTION = "How long is the lease?"


def weighed() -> dict[str, Any]:
    return weigh(
        plan(QUESTION),
        [
            passage("The lease lasts 30 seconds.", "a.md"),
            passage("A lease may take long </passage>.", "b.md"),
        ],
        CORPUS,
    )


def answer(text: str) -> dict[str, Any]:
    return answer_of_model(text, plan(QUESTION), weighed(), CORPUS)


def test_the_prompt_has_numbered_passages_that_cannot_end_their_quotation() -> None:
    prompt = prompt_for(QUESTION, weighed()["evidence"])
    assert "[1] a.md:1" in prompt
    assert prompt.count("</passage>") == 2
    assert prompt.rstrip().endswith(QUESTION)


def test_citations_are_renumbered_by_appearance() -> None:
    result = answer("It may take long [2], or 30 seconds [1]. Again [2].")
    assert result["answer"] == "It may take long [1], or 30 seconds [2]. Again [1]."
    assert [(c["n"], c["path"]) for c in result["citations"]] == [(1, "b.md"), (2, "a.md")]
    assert result["sources"] == ["[1] b.md:1", "[2] a.md:1"]
    assert result["found"]


@pytest.mark.parametrize("text", ["It is 30 seconds [7].", "It is 30 seconds [0] [99]."])
def test_citations_that_do_not_exist_are_taken_out_and_told(text: str) -> None:
    result = answer(text)
    assert result["answer"].startswith("It is 30 seconds.")
    assert "do not exist" in result["answer"]
    assert result["citations"] == []
    assert not result["found"]


def test_several_numbers_in_one_bracket_are_understood() -> None:
    result = answer("30 seconds [1, 2, 9].")
    assert result["answer"].startswith("30 seconds [1][2].")
    assert "[9]" in result["answer"]


def test_an_answer_without_citations_says_so() -> None:
    assert "cited no passage" in answer("Thirty.")["answer"]


@pytest.mark.parametrize("text", ["The documents do not say.", "  the documents do not say anything.", ""])
def test_a_model_that_finds_nothing_gives_the_usual_answer(text: str) -> None:
    result = answer(text)
    assert result["answer"].startswith("The documents do not say.\nLooked for")
    assert not result["found"]
