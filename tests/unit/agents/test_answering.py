"""Planning, taking apart, weighing, quoting: the researcher's pure parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.documents.words import stem, stems
from agents.researcher.answering import answer_from, place_of
from agents.researcher.planning import kind_of, plan, refined_queries
from agents.researcher.segments import units_of
from agents.researcher.weighing import weigh
from tests.support.corpora import BRACKWATER, Corpus, LocalResearcher, write_files


def passage(text: str, path: str = "a.md", heading: str = "", line: int = 1) -> dict[str, Any]:
    return {
        "passage_id": f"{path}:{line}",
        "path": path,
        "title": "",
        "heading": heading,
        "start_line": line,
        "end_line": line + text.count("\n"),
        "page": None,
        "text": text,
        "score": 1.0,
    }


def ask(question: str, *passages: dict[str, Any]) -> dict[str, Any]:
    corpus = {"passages": 100, "counts": {}}
    made = plan(question)
    return answer_from(made, weigh(made, passages, corpus), corpus)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("configuration", "configur"), ("configured", "configur"), ("replaying", "replai"), ("flies", "fli"),
        ("hopping", "hop"), ("relational", "relat"), ("agreed", "agre"), ("adjustable", "adjust"),
        ("controlling", "control"), ("ties", "ti"), ("sky", "sky"), ("happy", "happi"), ("x86", "x86"),
    ],
)  # fmt: skip
def test_stems_are_porters(word: str, expected: str) -> None:
    assert stem(word) == expected


def test_names_are_taken_apart_and_accents_do_not_matter() -> None:
    assert stems("EventEnvelope run_id Café") == [stem("event"), stem("envelope"), "run", "id", "cafe"]


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("How long does it take?", "duration"), ("How many are there?", "count"),
        ("How do I start it?", "how"),
        ("Why is it blue?", "why"), ("When is it due?", "when"), ("Who owns it?", "who"),
        ("What is a lease?", "what"), ("Is it safe?", "whether"), ("lease", "other"),
    ],
)  # fmt: skip
def test_the_kind_of_a_question_is_recognised(question: str, kind: str) -> None:
    assert kind_of(question) == kind


def test_a_plan_looks_for_words_phrases_names_and_synonyms() -> None:
    made = plan('What does kernel.node.entered mean for "dead letters" when deleting?')
    assert "kernel.node.entered" in made["phrases"]
    assert "dead letters" in made["phrases"]
    assert '"kernel.node.entered"' in made["queries"][0]
    assert any("remove" in query for query in made["queries"])
    assert "mean" not in [term["text"] for term in made["terms"]]
    assert refined_queries(made, ["deleting"])


@given(st.text(max_size=200))
def test_every_question_has_a_plan_that_is_json(question: str) -> None:
    made = plan(question)
    assert json.loads(json.dumps(made)) == made


def test_units_are_sentences_items_rows_and_code_with_their_lines() -> None:
    text = (
        "One. Two is\nlonger.\n\n- item\n  goes on\n- other\n\n| a | b |\n|---|---|\n\n```\ncode\n\nmore\n```"
    )
    assert [(unit.kind, unit.text, unit.first, unit.last) for unit in units_of(text, "a.md")] == [
        ("prose", "One.", 0, 0),
        ("prose", "Two is longer.", 0, 1),
        ("item", "- item goes on", 3, 4),
        ("item", "- other", 5, 5),
        ("table", "| a | b |", 7, 7),
        ("table", "|---|---|", 8, 8),
        ("code", "code\n\nmore", 11, 13),
    ]


def test_docstrings_and_comments_are_prose() -> None:
    text = 'def f():\n    """Does it.\n\n    In steps.\n    """\n    # because\n    return 1'
    units = units_of(text, "a.py")
    assert [(unit.kind, unit.text) for unit in units] == [
        ("code", "def f():"),
        ("prose", "Does it."),
        ("prose", "In steps."),
        ("prose", "because"),
        ("code", "return 1"),
    ]


def test_the_best_passage_comes_first_and_is_cited_by_line() -> None:
    result = ask(
        "How long is the lease?",
        passage("The office has a door.", "b.md"),
        passage("Some words.\n\nThe lease lasts 30 seconds.", "c.md", line=10),
    )
    assert result["found"]
    assert result["citations"][0] == {
        "n": 1, "path": "c.md", "start_line": 12, "end_line": 12, "page": None,
        "quote": "The lease lasts 30 seconds.",
    }  # fmt: skip
    assert result["answer"] == "> The lease lasts 30 seconds. [1]"
    assert result["sources"] == ["[1] c.md:12"]


def test_the_same_text_twice_is_quoted_once() -> None:
    text = "The lease of a worker lasts 30 seconds and is renewed every ten."
    result = ask("How long is the lease of a worker?", passage(text, "a.md"), passage(text, "b.md"))
    assert [citation["path"] for citation in result["citations"]] == ["a.md"]


def test_a_sentence_that_leans_back_brings_what_it_leans_on() -> None:
    text = "A lease is a right for a time. It names the epoch of the worker that holds the partition lease."
    result = ask("What names the epoch of the worker?", passage(text))
    assert result["citations"][0]["quote"].startswith("A lease is a right for a time. It names")


def test_what_a_sentence_announces_is_quoted_with_it() -> None:
    text = "To renew the lease do this:\n\n- knock\n- wait\n\nOther words here."
    quote = ask("How do I renew the lease?", passage(text))["citations"][0]["quote"]
    assert quote == "To renew the lease do this:\n- knock\n- wait"


def test_a_row_is_quoted_with_the_header_of_its_table() -> None:
    text = "| setting | default |\n|---|---|\n| colour | red |\n| lease | 30 s |\n| size | 3 |"
    [citation] = ask("What is the default of the lease setting?", passage(text))["citations"]
    assert citation["quote"] == "| setting | default |\n|---|---|\n| lease | 30 s |"
    assert (citation["start_line"], citation["end_line"]) == (4, 4)


def test_a_page_is_cited_as_a_page() -> None:
    item = {
        **passage("The lease lasts 30 seconds.", "a.pdf"),
        "start_line": None,
        "end_line": None,
        "page": 7,
    }
    assert ask("How long is the lease?", item)["sources"] == ["[1] a.pdf p. 7"]
    assert place_of({"path": "a.md", "start_line": 3, "end_line": 5, "page": None}) == "a.md:3-5"


def test_what_is_not_there_is_named() -> None:
    result = ask("Who pays the gardener?", passage("The lease lasts 30 seconds."))
    assert result == {
        "answer": "The documents do not say.\nLooked for “pays” (nowhere), “gardener” (nowhere).",
        "citations": [],
        "sources": [],
        "found": False,
    }


async def test_thin_evidence_is_refined_once(tmp_path: Path) -> None:
    corpus = Corpus(write_files(tmp_path / "docs", {"a.md": "Apples are red."}), tmp_path / "home")
    corpus.update()
    researcher = LocalResearcher(corpus.index)
    await researcher.ask("How do I delete a submarine?")
    first = plan("How do I delete a submarine?")["queries"]
    assert researcher.asked[: len(first)] == first
    assert len(researcher.asked) > len(first)
    assert len(researcher.asked) == len(set(researcher.asked))


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
