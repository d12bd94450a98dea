"""The vectors of an index, and which of them are near to one: signs first, then the best of them in full.

A vector's signs are one bit for each of its numbers. Those of a scope lie in chunks of `CHUNK` vectors, and a
search reads them all; the `AGAIN` vectors whose signs differ least are then compared in full. So a scope with
no more vectors than that is compared exactly. Of 40,000 sentences with WordLlama's vectors of 256 numbers
98 of 100 of the ten nearest were among the 400 with the nearest signs.

Decision record: at 1,000,000 vectors of 256 numbers in one scope a search for 40 takes 20 to 25 ms of the
processor. `sqlite-vec` 0.1.9 through apsw takes 31 ms to compare the signs alone for ten, 90 ms for a hundred
and a second for a thousand, and would be a second SQLite in the process. To compare the vectors themselves is
to read a gigabyte. Each search reads the chunks: there is no cache that another process could make stale.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from noesium_stream.errors import AgentMemoryError
from noesium_stream.projection.builtin.semantic import Embedder

CHUNK: Final = 4_096
AGAIN: Final = 500
_WORD_BITS: Final = 64

Vectors = npt.NDArray[np.float32]
_Words = npt.NDArray[np.uint64]
_Numbers = npt.NDArray[np.int64]


class NearVectors:
    """The vectors that an embedder makes, in the file of an index, which has the tables `item` and `signs`.

    Args:
        embedder: makes the vectors.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of texts, at least one, as rows of length 1; a zero vector stays one.

        Raises:
            AgentMemoryError: they are not as many as the texts, have several lengths, or are empty.
        """
        vectors = self._embedder.embed(texts)
        if len(vectors) != len(texts) or len({len(one) for one in vectors}) != 1 or not len(vectors[0]):
            raise AgentMemoryError(
                f"The embedder {self.name[:60]!r} has not made one vector for each text, all of one length."
            )
        rows = np.asarray(vectors, dtype=np.float32)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        found: Vectors = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
        return found

    def add(
        self, db: sqlite3.Connection, rows: Sequence[tuple[int, str]], vectors: Vectors
    ) -> dict[int, int]:
        """Add the signs of vectors; return the chunk of each number.

        Args:
            db: in a transaction.
            rows: the number and the scope's mark of each vector.
            vectors: one row for each.
        """
        signs = _signs(vectors)
        of_mark: dict[str, list[int]] = {}
        for at, (_, mark) in enumerate(rows):
            of_mark.setdefault(mark, []).append(at)
        places: dict[int, int] = {}
        for mark, all_of_mark in of_mark.items():
            waiting = all_of_mark
            while waiting:
                known = db.execute(
                    "SELECT chunk, numbers, bits FROM signs WHERE mark = ? AND count < ? LIMIT 1",
                    (mark, CHUNK),
                ).fetchone()
                chunk, old_numbers, old_bits = (None, b"", b"") if known is None else known
                before = _bits(old_bits, len(old_numbers) // 8, len(signs))
                now, waiting = waiting[: CHUNK - before.shape[1]], waiting[CHUNK - before.shape[1] :]
                numbers = old_numbers + np.array([rows[at][0] for at in now], dtype=np.int64).tobytes()
                bits = np.concatenate((before, signs[:, now]), axis=1).tobytes()
                done = db.execute(
                    "INSERT OR REPLACE INTO signs VALUES (?, ?, ?, ?, ?)",
                    (chunk, mark, len(numbers) // 8, numbers, bits),
                )
                places |= dict.fromkeys([rows[at][0] for at in now], chunk or done.lastrowid or 0)
        return places

    def remove(self, db: sqlite3.Connection, places: Iterable[tuple[int, int]]) -> None:
        """Remove the signs of vectors, by number and chunk; `db` is in a transaction."""
        gone: dict[int, list[int]] = {}
        for number, chunk in places:
            gone.setdefault(chunk, []).append(number)
        query = "SELECT numbers, bits FROM signs WHERE chunk = ?"
        for chunk, of_chunk in gone.items():
            numbers_blob, bits_blob = db.execute(query, (chunk,)).fetchone()
            numbers = np.frombuffer(numbers_blob, dtype=np.int64)
            stay = ~np.isin(numbers, of_chunk)
            if not stay.any():
                db.execute("DELETE FROM signs WHERE chunk = ?", (chunk,))
                continue
            words = len(bits_blob) // len(numbers_blob)
            bits = _bits(bits_blob, len(numbers), words)[:, stay].tobytes()
            db.execute(
                "UPDATE signs SET count = ?, numbers = ?, bits = ? WHERE chunk = ?",
                (int(stay.sum()), numbers[stay].tobytes(), bits, chunk),
            )

    def nearest(self, db: sqlite3.Connection, vector: Vectors, limit: int, marks: Iterable[str]) -> list[int]:
        """The numbers of the vectors of these scopes that are nearest to one, the nearest first.

        Raises:
            AgentMemoryError: the vector has another length than these.
        """
        asked = _signs(vector[np.newaxis])
        numbers: list[_Numbers] = []
        distances: list[npt.NDArray[np.uint16]] = []
        for mark in marks:
            for numbers_blob, blob in db.execute("SELECT numbers, bits FROM signs WHERE mark = ?", (mark,)):
                numbers.append(np.frombuffer(numbers_blob, dtype=np.int64))
                bits = _bits(blob, len(numbers[-1]), len(asked))
                distances.append(np.bitwise_count(bits ^ asked).sum(axis=0, dtype=np.uint16))
        if not numbers:
            return []
        near = np.concatenate(numbers)[_smallest(np.concatenate(distances), max(AGAIN, limit))]
        return _in_full(db, vector, near, limit)


def _in_full(db: sqlite3.Connection, vector: Vectors, near: _Numbers, limit: int) -> list[int]:
    found = db.execute(
        "SELECT number, vector FROM item WHERE number IN (SELECT value FROM json_each(?))",
        (str(near.tolist()),),
    ).fetchall()
    vectors = np.frombuffer(b"".join([blob for _, blob in found]), dtype=np.float32)
    if len(vectors) != len(found) * len(vector):
        raise _other_length()
    numbers = np.array([number for number, _ in found], dtype=np.int64)
    scores = vectors.reshape(len(found), -1) @ vector
    best: list[int] = numbers[np.lexsort((numbers, -scores))[:limit]].tolist()
    return best


def _smallest(distances: npt.NDArray[np.uint16], count: int) -> npt.NDArray[Any]:
    """Where the smallest distances are; of equal ones at the limit the first."""
    if len(distances) <= count:
        return np.arange(len(distances))
    limit = int(np.searchsorted(np.cumsum(np.bincount(distances)), count))
    below = np.flatnonzero(distances < limit)
    return np.concatenate((below, np.flatnonzero(distances == limit)[: count - len(below)]))


def _signs(vectors: Vectors) -> _Words:
    """The signs of vectors: a column of words for each."""
    packed = np.packbits(vectors > 0, axis=1)
    short = -packed.shape[1] % (_WORD_BITS // 8)
    words: _Words = np.ascontiguousarray(np.pad(packed, ((0, 0), (0, short)))).view(np.uint64).T
    return words


def _bits(blob: bytes, count: int, words: int) -> _Words:
    """The signs of a chunk, one column for each vector."""
    if len(blob) != count * words * 8:
        raise _other_length()
    return np.frombuffer(blob, dtype=np.uint64).reshape(words, count)


def _other_length() -> AgentMemoryError:
    return AgentMemoryError(
        "An embedder has made vectors of another length than those in the index of memory.",
        hint="Give each model, and each version of it, a name of its own.",
    )
