"""From a question to queries, and from passages to what is said."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.documents.words import names_of, stem, stems, words_of
from agents.researcher.answering import CLOSE, NOTHING, TOO_LITTLE, answer_from
from agents.researcher.planning import MOST_QUERIES, plan, refined_queries
from agents.researcher.weighing import FIRST, weigh
from tests.support.corpora import BRACKWATER, Corpus, LocalResearcher, write_files
from tests.support.found import passage, unit


def ask(question: str, *passages: dict[str, Any], counts: dict[str, int] | None = None) -> dict[str, Any]:
    made = plan(question)
    return answer_from(made, weigh(made["queries"], [passages]), {"counts": counts or {}})


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("configuration", "configured"), ("replaying", "replays"), ("flies", "fly"), ("hopping", "hops"),
        ("agreed", "agrees"), ("controlling", "controls"), ("ties", "tie"),
    ],
)  # fmt: skip
def test_forms_of_a_word_have_one_stem(word: str, other: str) -> None:
    assert stem(word) == stem(other)


def test_names_are_taken_apart_and_kept_and_accents_do_not_matter() -> None:
    said = stems("EventEnvelope run_id Café")
    assert said == [stem("eventenvelope"), stem("event"), stem("envelope"), "run", "id", "cafe", "run_id"]


def test_stems_of_some_initials_are_those_of_all_that_begin_so() -> None:
    irregular = "skis skies dying lying tying idly gently ugly early only singly yes youth by sky news"
    texts = [path.read_text(encoding="utf-8") for path in sorted(BRACKWATER.rglob("*.md"))]
    for text in [irregular, "É Üben straße 漢字 1st", *texts]:
        for initial in {word[0] for word in words_of(text)}:
            few = stems(text, frozenset(initial))
            assert few == [one for one in stems(text) if one[0] == initial or one in names_of(text)]
    assert len(texts) > 3


@pytest.mark.parametrize(
    "question", ["How long is the lease?", "Where are salt and pepper kept?", "lease", "Is it and why not"]
)
def test_a_question_is_one_query_in_its_own_words(question: str) -> None:
    assert plan(f"  {question} ")["queries"] in ([question], [])


@pytest.mark.parametrize(
    ("question", "queries"),
    [
        (
            "Who owns the lease and how is the lease renewed?",
            ["Who owns the lease", "how is the lease renewed?"],
        ),
        ("What is a lease? Who renews leases?", ["What is a lease? Who renews leases?"]),
        ("What renews a lease? Who ends a lease?", ["What renews a lease?", "Who ends a lease?"]),
        ("List all worker leases; who ends a lease?", ["List all worker leases;", "who ends a lease?"]),
    ],
)
def test_a_compound_question_has_a_query_for_each_part_that_says_something(
    question: str, queries: list[str]
) -> None:
    assert plan(question)["queries"] == queries


def test_a_question_of_many_parts_has_few_queries() -> None:
    many = " ".join(f"What renews lease number{number}?" for number in range(9))
    assert len(plan(many)["queries"]) == MOST_QUERIES


def test_a_plan_has_the_words_that_say_something_as_they_are_written() -> None:
    assert plan("What does the EventEnvelope of IT mean for LEASES?")["words"] == [
        "EventEnvelope",
        "IT",
        "LEASES",
    ]


@pytest.mark.parametrize("question", ["the", "x", "who are you?", "Who am I?", "what is it for", "?"])
def test_a_question_of_small_words_has_no_query(question: str) -> None:
    made = plan(question)
    assert (made["words"], made["queries"]) == ([], [])


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What does `if` do?", ["if"]),
        ("what is “it”?", ["it"]),
        ("What is IT?", ["IT"]),
        ("What is C?", ["C"]),
    ],
)
def test_small_words_count_where_they_are_quoted_or_acronyms(question: str, words: list[str]) -> None:
    assert plan(question)["words"] == words


def test_names_are_refined_by_taking_them_apart() -> None:
    assert refined_queries(plan("How large is lru_cache of MaxAttempts?")) == ["large lru cache Max Attempts"]
    assert refined_queries(plan("How large is it?")) == []


@given(st.text(max_size=200))
def test_every_question_has_a_plan_that_is_json(question: str) -> None:
    made = plan(question)
    assert json.loads(json.dumps(made)) == made
    assert all(query.strip() for query in [*made["queries"], *refined_queries(made)])


def test_an_answer_is_quotes_citations_and_sources() -> None:
    result = ask(
        "How long is the lease?",
        passage(
            unit("Some words.", 10),
            unit("The lease lasts 30 seconds.", 12, group=1, closeness=1, coverage=1),
            path="c.md",
            title="Leases",
            heading="Leases > Length",
        ),
    )
    assert result == {
        "answer": "> Some words.\n> The lease lasts 30 seconds. [1]",
        "citations": [
            {
                "n": 1,
                "path": "c.md",
                "start_line": 10,
                "end_line": 12,
                "page": None,
                "quote": "Some words.\nThe lease lasts 30 seconds.",
            }
        ],
        "sources": ["[1] c.md:10-12 (Length)"],
        "outcome": "answer",
        "probability": pytest.approx(0.870, abs=1e-3),
        "found": True,
    }


def test_what_comes_close_is_told_as_that_and_is_not_found() -> None:
    result = ask("What renews a lease?", passage("The lease is red.", coverage=0.5))
    assert result["answer"] == f"{CLOSE}\n\n> The lease is red. [1]"
    assert (result["outcome"], result["found"], len(result["citations"])) == ("close", False, 1)


def test_a_few_passages_are_quoted_in_their_order_and_numbered() -> None:
    many = [passage(f"word{number}", path=f"{number}.md") for number in range(FIRST + 3)]
    result = ask("What renews a lease?", *many)
    assert [(one["n"], one["path"]) for one in result["citations"]] == [
        (number + 1, f"{number}.md") for number in range(FIRST)
    ]
    assert len(result["sources"]) == FIRST


def test_a_quote_that_says_only_what_one_before_it_says_is_left_out() -> None:
    long = passage("The lease ends.", "Then another worker takes over what it had.", path="a.md")
    result = ask("What ends a lease?", long, passage("The lease ends.", path="b.md"))
    assert [one["path"] for one in result["citations"]] == ["a.md"]


def test_what_was_looked_for_is_named_with_how_often_it_occurs() -> None:
    result = ask(
        "Who pays the green gardener?",
        passage("The lease lasts 30 seconds.", coverage=0.0),
        counts={"pays": 0, "green": 1, "gardener": 1234, "other": 3},
    )
    assert result == {
        "answer": f"{NOTHING}\nLooked for “pays” (nowhere), “green” (in 1 passage), "
        "“gardener” (in 1,234 passages).",
        "citations": [],
        "sources": [],
        "outcome": "nothing",
        "probability": pytest.approx(0.008, abs=1e-3),
        "found": False,
    }


def test_too_little_to_look_for_is_told() -> None:
    result = ask("Who are you?")
    assert (result["answer"], result["outcome"]) == (TOO_LITTLE, "nothing")


def indexed(tmp_path: Path, files: dict[str, str]) -> LocalResearcher:
    corpus = Corpus(write_files(tmp_path / "docs", files), tmp_path / "home")
    corpus.update()
    return LocalResearcher(corpus.index)


async def test_a_question_that_is_answered_is_asked_once(tmp_path: Path) -> None:
    researcher = indexed(tmp_path, {"a.md": "Apples are red."})
    assert (await researcher.ask("Are apples red?"))["outcome"] == "answer"
    assert researcher.asked == ["Are apples red?"]


async def test_thin_evidence_is_refined_once_by_taking_names_apart(tmp_path: Path) -> None:
    researcher = indexed(tmp_path, {"a.md": "The cache holds the least recent. Apples are red."})
    await researcher.ask("How large is apple_cache?")
    assert researcher.asked == ["How large is apple_cache?", "large apple cache"]


async def test_thin_evidence_without_names_is_not_refined(tmp_path: Path) -> None:
    researcher = indexed(tmp_path, {"a.md": "Apples are red."})
    assert (await researcher.ask("Who deletes a submarine?"))["outcome"] == "nothing"
    assert researcher.asked == ["Who deletes a submarine?"]


async def test_both_parts_of_a_compound_question_are_answered(tmp_path: Path) -> None:
    researcher = indexed(
        tmp_path, {"a.md": "Apples are red.", "b.md": "Bananas grow in Ecuador.", "c.md": "Trains are late."}
    )
    result = await researcher.ask("Which colour red are apples and where do bananas grow?")
    assert {one["path"] for one in result["citations"][:2]} == {"a.md", "b.md"}


def test_answers_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "import asyncio, json, sys, tempfile; from pathlib import Path\n"
        "from tests.support.corpora import BRACKWATER, Corpus, LocalResearcher\n"
        "corpus = Corpus(BRACKWATER, Path(tempfile.mkdtemp())); corpus.update()\n"
        "for q in ('Why was SQLite chosen?', 'How do I clean it?', 'Who has a yellow rope?'):\n"
        "    print(json.dumps(asyncio.run(LocalResearcher(corpus.index).ask(q))))"
    )
    root = str(BRACKWATER.parents[2])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": root, "PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
