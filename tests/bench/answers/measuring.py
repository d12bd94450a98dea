"""Figures of a searcher: what its quotes hold, and what it says where there is no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.answers.corpora import Question, is_told
from tests.bench.answers.searchers import Said, Searcher


@dataclass(frozen=True)
class Result:
    """One question and what was said; `place` is the first quote with a gold text, from 0, or None."""

    question: Question
    said: Said
    place: int | None


def results_of(searcher: Searcher, questions: Sequence[Question]) -> list[Result]:
    """Ask all questions."""
    found = []
    for question in questions:
        said = searcher(question.text)
        places = (
            at for at, quote in enumerate(said.quotes) if any(is_told(gold, quote) for gold in question.gold)
        )
        found.append(Result(question, said, next(places, None)))
    return found


def share(results: Sequence[Result], *, first: bool = False, kind: str | None = None) -> float:
    """Percent of the questions with an answer whose gold text is in a quote, or in the first one."""
    asked = [one for one in results if one.question.kind != "none" and kind in (None, one.question.kind)]
    right = [one for one in asked if (one.place == 0 if first else one.place is not None)]
    return 100 * len(right) / max(len(asked), 1)


def refused(results: Sequence[Result]) -> float:
    """Percent of the questions without an answer where none was claimed."""
    asked = [one for one in results if one.question.kind == "none"]
    return 100 * sum(one.said.outcome != "answer" for one in asked) / max(len(asked), 1)


def claimed(results: Sequence[Result]) -> float:
    """Percent of the questions with an answer where one was claimed."""
    asked = [one for one in results if one.question.kind != "none"]
    return 100 * sum(one.said.outcome == "answer" for one in asked) / max(len(asked), 1)


def wrong(results: Sequence[Result]) -> float:
    """Percent of the claimed answers whose quotes hold no gold text."""
    answers = [one for one in results if one.said.outcome == "answer"]
    return 100 * sum(one.place is None for one in answers) / max(len(answers), 1)
