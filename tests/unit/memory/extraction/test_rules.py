"""Sentences of a fixed form: what is found, and what is left alone."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noesium_stream.memory.extraction import Extracted, RuleExtractor, Turn


async def found(*texts: str, first: int = 0) -> list[Extracted]:
    turns = [Turn(f"event:{at}", text) for at, text in enumerate(texts)]
    return list(await RuleExtractor().extract(turns, [], first))


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("Hi, my name is Ada Lovelace.", "fact.name", "Ada Lovelace"),
        ("Well, I live in Paris", "fact.home", "Paris"),
        ("I've moved to St. Louis", "fact.home", "St"),
        ("I work at Acme.com; it is fine", "fact.employer", "Acme.com"),
        ("I'm a vegan", "fact.diet", "vegan"),
        ("I'm allergic to nuts", "fact.allergy.nuts", "allergic nuts"),
        ("I really like green tea!", "preference.green-tea", "likes green tea"),
        ("I don't like green tea", "preference.green-tea", "dislikes green tea"),
        ("My favourite colour is blue", "preference.favourite.colour", "blue"),
        ("I bought a bicycle", "event.bought.a-bicycle", "I bought a bicycle"),
        ("Please remember that the key is under the mat", "fact.note.", "the key is under the mat"),
    ],
)
async def test_a_sentence_of_a_form_is_found(text: str, key: str, value: str) -> None:
    (one,) = await found(text)
    assert one.key.startswith(key)
    assert one.value == value
    assert one.is_possible(1)


@pytest.mark.parametrize(
    "text",
    [
        "Do you know that I live in Paris?",
        "If I lived in Paris, I would walk.",
        "She said: my name is Eve",
        "What do I like?",
        "I like " + "very " * 200 + "much tea",
        "I like ...",
        "",
    ],
)
async def test_what_only_looks_like_one_is_left_alone(text: str) -> None:
    assert await found(text) == []


async def test_each_clause_of_a_sentence_counts() -> None:
    said = await found("My name is Ada, nice to meet you, and I live in Paris, France but I like Rome.")
    assert [one.value for one in said] == ["Ada", "Paris, France", "likes Rome"]


async def test_what_the_assistant_says_does_not_count() -> None:
    turns = [Turn("event:1", "I live in a computer", "assistant"), Turn("event:2", "I live in Rome")]
    assert [one.turns for one in await RuleExtractor().extract(turns, [], 0)] == [(1,)]


async def test_turns_before_the_first_new_one_are_not_read_again() -> None:
    assert [one.value for one in await found("I live in Paris", "I live in Rome", first=1)] == ["Rome"]


@given(st.lists(st.text(max_size=500), max_size=4))
async def test_whatever_is_said_all_that_is_found_is_possible(texts: list[str]) -> None:
    assert all(one.is_possible(len(texts)) for one in await found(*texts))


@pytest.mark.parametrize(
    "text", ["i have " * 60_000, " " * 300_000, "my favourite " + "a " * 100_000, "." * 300_000]
)
async def test_a_long_text_takes_no_long_time(text: str) -> None:
    begun = time.process_time()
    await found(text)
    assert time.process_time() - begun < 2
