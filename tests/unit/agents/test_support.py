"""Whether what a model says stands in the passages that it cites."""

from __future__ import annotations

import pytest

from agents.researcher.support import fault_of, sentences_of

PASSAGE = (
    "Leases\nThe lease of a worker lasts 30 seconds. EventLog renews it every ten seconds, as Maria Silva "
    "says. A lease is not renewed by clients. Version 1.2.3 calls it `renew_lease`. Workers hold it."
)
QUESTION = "What does LeaseKeeper do in 2024?"


def fault(sentence: str) -> str | None:
    return fault_of(sentence, [PASSAGE], QUESTION)


@pytest.mark.parametrize(
    "sentence",
    [
        "The lease of a worker lasts 30 seconds.",
        "A worker's lease lasts thirty seconds.",
        "EventLog renews the lease every 10 seconds.",
        "Maria Silva says that it is renewed every ten seconds.",
        "A lease isn't renewed by clients.",
        "A lease is not “renewed by clients”, whatever `renew_lease` is.",
        "In version 1.2.3 it is called renew_lease.",
        "LeaseKeeper renews the leases of 2024 in seconds.",
    ],
)
def test_what_the_passage_says_in_its_words_has_no_fault(sentence: str) -> None:
    assert fault(sentence) is None


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        ("The lease of a worker lasts 90 seconds.", "90"),
        ("The lease of a worker lasts 30.5 seconds.", "30.5"),
        ("The lease of a worker lasts 3 seconds.", "3"),
        ("The lease of a worker lasts ninety seconds.", "ninety"),
        ("Version 1.2.4 calls it a lease of a worker.", "1.2.4"),
    ],
)
def test_an_invented_number_is_a_fault(sentence: str, number: str) -> None:
    assert fault(sentence) == f"its passages do not have the number {number}"


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("The lease of a worker is held by LockMaster.", "LockMaster"),
        ("The lease of a worker is held by lock_master.", "lock_master"),
        ("The lease of a worker is held by NASA.", "NASA"),
        ("The lease of a worker is renewed by Peter, every ten seconds.", "Peter"),
    ],
)
def test_an_invented_name_is_a_fault(sentence: str, name: str) -> None:
    assert fault(sentence) == f"its passages do not have the name {name}"


@pytest.mark.parametrize(
    "sentence",
    [
        "The lease of a worker “lasts for ever”.",
        'The lease of a worker "lasts ten seconds".',
        "The lease of a worker is made by `hold worker`.",
    ],
)
def test_an_invented_quote_is_a_fault(sentence: str) -> None:
    assert "do not have the quote" in (fault(sentence) or "")


@pytest.mark.parametrize(
    "sentence",
    [
        "A lease is renewed by clients.",
        "The lease of a worker never lasts 30 seconds.",
        "The lease of a worker doesn't last 30 seconds.",
        "The lease of a worker doesn’t last 30 seconds.",
        "The lease of a worker hasn't lasted 30 seconds.",
    ],
)
def test_a_turned_negation_is_a_fault(sentence: str) -> None:
    assert fault(sentence) == "it turns a “not” of its passages around"


def test_other_words_are_a_fault() -> None:
    assert fault("Bananas grow on tall plants near lakes.") == "its passages do not have most of its words"


def test_only_the_cited_passages_count() -> None:
    assert fault_of("Bananas grow here.", [PASSAGE, "Bananas grow here."], QUESTION) is None


def test_sentences_end_at_full_stops_and_lines() -> None:
    text = "One is v1.2 here. Two is e.g. this! Is it?\n- three\n\n“Four.” Five"
    assert sentences_of(text) == [
        "One is v1.2 here.",
        "Two is e.g. this!",
        "Is it?",
        "- three",
        "“Four.” Five",
    ]
