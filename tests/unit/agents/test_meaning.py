"""The vectors of texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import wordllama

from agents.librarian import meaning
from agents.librarian.meaning import SIZE, products, vectors_of

TEXTS = ["lease", "lease kept worker", "", "word " * 300, "naïve 漢字 \x00 🎈", *map(str, range(70))]


def model() -> Any:
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def test_vectors_are_those_of_the_model_that_is_loaded_as_its_authors_load_it() -> None:
    with numpy.errstate(invalid="ignore"):
        expected = model().embed(TEXTS, norm=True)
        found = meaning._model().embed(TEXTS, norm=True)
    assert found.dtype == expected.dtype == numpy.float32
    assert numpy.array_equal(found, expected, equal_nan=True)


def test_the_weights_stay_in_their_file() -> None:
    weights = meaning._model().embedding
    assert weights.dtype == numpy.float16
    assert not weights.flags.owndata
    assert not weights.flags.writeable


def test_a_text_without_words_has_a_vector_of_zeros() -> None:
    assert vectors_of([]).shape == (0, SIZE)
    assert not vectors_of([""]).any()


def test_equal_rows_have_equal_products_wherever_they_stand() -> None:
    [one, other] = vectors_of(["lease kept worker", "a question about leases"])
    for rows in range(1, 70):
        assert len(set(products(numpy.tile(one, (rows, 1)), other))) == 1, rows
