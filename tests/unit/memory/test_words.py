"""Search by words: what matches best is first, by the numbers of the scopes that are searched."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import pytest

from noesium_stream.memory import semantic, words
from noesium_stream.memory.words import by_words


def index(*texts: str, others: Sequence[str] = ()) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(semantic.SCHEMA)
    rows = [*((text, "mine") for text in texts), *((text, "theirs") for text in others)]
    for number, (text, mark) in enumerate(rows):
        db.execute("INSERT INTO item VALUES (?, ?, ?, NULL, NULL)", (number, mark, text))
        db.execute("INSERT INTO words (rowid, body, mark) VALUES (?, ?, ?)", (number, text, mark))
    return db


@pytest.mark.parametrize(
    ("texts", "question", "expected"),
    [
        (["snow", "rain and snow", "rain"], "rain snow", [1, 0, 2]),
        (["rain", "rain", "rain", "snow"], "rain snow", [3, 0, 1, 2]),
        (["rain in a long text about much else", "rain", "sun"], "rain", [1, 0]),
        (["rain sun", "rain rain"], "rain", [1, 0]),
        (["Das Café", "cafe", "CAFÉ"], "café", [1, 2, 0]),
        (["the_rain fell", "a b"], "rain", [0]),
        (["rain"], 'snow ?! " OR *', []),
        (["rain"], "", []),
    ],
)
def test_what_matches_best_is_first(texts: list[str], question: str, expected: list[int]) -> None:
    assert by_words(index(*texts), question, 10, ["mine"]) == expected


def test_words_are_as_rare_as_they_are_in_the_scopes_that_are_searched() -> None:
    mine = ["rain", "rain", "rain", "snow"]
    db = index(*mine, others=["snow"] * 50)
    assert by_words(db, "rain snow", 10, ["mine"]) == [3, 0, 1, 2]
    assert by_words(db, "rain snow", 10, ["mine", "theirs"])[:3] == [0, 1, 2]
    assert by_words(db, "rain snow", 2, ["mine"]) == [3, 0]


def test_of_many_texts_with_the_words_the_best_are_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "AGAIN", 5)
    db = index("rain snow", *["rain"] * 100)
    assert by_words(db, "rain snow", 3, ["mine"])[0] == 0
