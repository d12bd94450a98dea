"""Texts as vectors: close to each other where they say the same in other words.

The model is WordLlama: static (a vector for each piece of a word, averaged), 256 dimensions, 16 MB, offline.
Words that say nothing are left out before: they would pull all vectors to the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy
import orjson
from numpy.typing import NDArray

from agents.documents.words import STOP_WORDS, words_of

SIZE: Final = 256
_STORED: Final = numpy.float16
_MOST_WORDS: Final = 400
_TOKENIZER: Final = "l2_supercat_tokenizer_config.json"
_WEIGHTS: Final = "l2_supercat_256.safetensors"

Vectors = NDArray[numpy.float32]


def vectors_of(texts: Sequence[str]) -> Vectors:
    """A vector of length 1 for each text, in float32: shape (texts, 256)."""
    if not texts:
        return numpy.zeros((0, SIZE), dtype=numpy.float32)
    found: Any = _model().embed([_told(text) for text in texts], norm=True)
    return numpy.nan_to_num(numpy.asarray(found, dtype=numpy.float32))


def packed(vector: Vectors) -> bytes:
    """A vector as it is stored: 512 bytes."""
    return bytes(vector.astype(_STORED).tobytes())


def unpacked(rows: Sequence[bytes]) -> Vectors:
    """Stored vectors: shape (rows, 256). A row of another length counts as a zero vector."""
    width = SIZE * _STORED().itemsize
    joined = b"".join(row if len(row) == width else bytes(width) for row in rows)
    return numpy.frombuffer(joined, dtype=_STORED).reshape(-1, SIZE).astype(numpy.float32)


def products(vectors: Vectors, other: Vectors) -> list[float]:
    """The product of each row with a vector. Equal rows have equal products, wherever they stand: a matrix
    product may sum a row's terms in another order than those of its neighbours.
    """
    return list(map(float, numpy.einsum("ij,j->i", vectors, other)))


def _told(text: str) -> str:
    words = words_of(text)[:_MOST_WORDS]
    return " ".join([word for word in words if word not in STOP_WORDS] or words)


@cache
def _model() -> Any:
    """`WordLlama.load()` with its weights mapped into memory as they are stored.

    The model's own loader makes a copy of all of them in float32 (33 MB) for the few hundred rows that are
    looked up. Sums are in float32 either way.
    """
    module = import_module("wordllama")  # takes a while, and not every process searches
    folder = Path(str(module.__file__)).parent
    tokenizer = module.WordLlama.load_tokenizer(folder / "tokenizers" / _TOKENIZER)
    model = module.WordLlamaInference(numpy.zeros((1, SIZE), dtype=numpy.float32), tokenizer)
    model.embedding = _mapped(folder / "weights" / _WEIGHTS)
    return model


def _mapped(path: Path) -> NDArray[numpy.float16]:
    """The one array of a file in the format of safetensors: size of the header, header, array."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        [described] = orjson.loads(file.read(size)).values()
    shape = tuple(described["shape"])
    return numpy.asarray(numpy.memmap(path, dtype=numpy.float16, mode="r", offset=8 + size, shape=shape))
