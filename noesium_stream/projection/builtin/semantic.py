"""Semantic projections: search indexes over the rows of a deterministic projection (RFC-0004 §4.3.3, §5.3).

The index is eventually consistent, has its own version and is rebuilt when it does not match. It is never a
source of truth, and no fold reads it. Three rules enforce the latter: it is not a `BaseProjection`; all its
reads are asynchronous, which `apply` cannot call; it refuses to be used during a fold and to be held by a
projection.
"""

from __future__ import annotations

import asyncio
import math
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import orjson

from noesium_stream.projection.builtin.semantic_store import (
    Hit,
    Item,
    Range,
    SemanticStore,
    cannot_write,
    not_written,
)
from noesium_stream.projection.fold.changed_rows import STATE
from noesium_stream.projection.fold_guard import Nondeterministic, refuse_in_fold
from noesium_stream.projection.state.atomic_file import alone
from noesium_stream.projection.state.state_file import StateFile
from noesium_stream.projection.stored.stored_projection import StoredProjection

_T = TypeVar("_T")
_AFTER: Final = b"t"
"""Upper bound of the keys of state rows: all are smaller, and none begins with it."""


class Embedder(Protocol):
    """Converts texts to vectors; similar meanings give vectors that are close to each other."""

    @property
    def name(self) -> str:
        """The model's name with its version; another name causes a rebuild of the index."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector per text, all of the same length."""


class SemanticProjection(Nondeterministic, ABC):
    """An index over the rows of a deterministic projection (RFC-1001 §8.3).

    Attributes:
        version: the version of the index; an index of another version is rebuilt.
    """

    version: int = 1

    @abstractmethod
    def refresh(self) -> Coroutine[Any, Any, int]:
        """Index the rows that have changed since the last refresh; return how many."""

    @abstractmethod
    def search(self, text: str, top_k: int = 5) -> Coroutine[Any, Any, list[Hit]]:
        """The rows that match a text best as of the last `refresh`, best first."""

    @abstractmethod
    def rebuild(self) -> Coroutine[Any, Any, int]:
        """Rebuild the index from all rows; return how many."""


def texts_of(key: str, state: Any) -> str | None:
    """The strings in a row's state, one per line; None if there are none."""
    found = list(_texts(state))
    return "\n".join(found) if found else None


class SemanticIndex(SemanticProjection):
    """SQLite full text search over a projection's rows, or search by meaning with an embedder.

    Use it as an asynchronous context manager, or `close` it. Reads of one index wait for each other.

    Args:
        source: the projection's stored states (`stored_projection`).
        embedder: None searches by words (BM25).
        text: returns the text to index from a row's key and its state as JSON; None leaves the row out.
            Increment `version` when it changes.
        path: the index file; default: beside the states.
        version: see `SemanticProjection`.
    """

    def __init__(
        self,
        source: StoredProjection,
        embedder: Embedder | None = None,
        *,
        text: Callable[[str, Any], str | None] = texts_of,
        path: Path | None = None,
        version: int = 1,
    ) -> None:
        self.version = version
        self._source = source
        self._embedder = embedder
        self._text = text
        kind = "words" if embedder is None else "vectors"
        self._store = SemanticStore(path or source.path / f"semantic-{kind}.db")
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> SemanticIndex:
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.close()

    def refresh(self) -> Coroutine[Any, Any, int]:
        """As `SemanticProjection.refresh`; rebuilds an index that does not match.

        Raises:
            StateFileError: the projection's state is damaged; the process that folds it rebuilds it.
            ProjectionError: another process writes the index, or the disk is full.
            ImpureProjectionError: called from a fold.
        """
        refuse_in_fold("a semantic index")
        return self._alone(lambda: self._changing(self._refresh))

    def search(self, text: str, top_k: int = 5) -> Coroutine[Any, Any, list[Hit]]:
        """As `SemanticProjection.search`.

        Raises:
            ImpureProjectionError: called from a fold.
        """
        refuse_in_fold("a semantic index")
        return self._alone(lambda: self._search(text, top_k))

    def rebuild(self) -> Coroutine[Any, Any, int]:
        """As `SemanticProjection.rebuild`; raises as `refresh`."""
        refuse_in_fold("a semantic index")
        return self._alone(lambda: self._changing(self._rebuild))

    @property
    def path(self) -> Path:
        """The index file."""
        return self._store.path

    def contents(self) -> list[tuple[str, str]]:
        """The key and the indexed text of each row, by key."""
        return self._store.contents()

    def close(self) -> None:
        """Close the index. Idempotent."""
        self._store.close()

    async def _alone(self, call: Callable[[], _T]) -> _T:
        """Run a call in a thread; if the index is damaged, rebuild it and run the call again."""
        async with self._turn:
            try:
                return await asyncio.to_thread(call)
            except sqlite3.DatabaseError as error:
                if cannot_write(error):
                    raise not_written(self._store.path, error) from error
                await asyncio.to_thread(self._changing, self._rebuild)
                return await asyncio.to_thread(call)

    def _changing(self, change: Callable[[], int]) -> int:
        """Change the index while no other process does.

        The indexed position of each state file is written together with the rows.
        """
        with alone(self._store.path):
            return change()

    def _refresh(self) -> int:
        about = self._store.about()
        files = self._source.files()
        if about.get("of") != self._of() or not about["files"].keys() <= {path.name for path in files}:
            return self._rebuild()
        count = 0
        for path in files:
            with closing(StateFile.open_to_read(path)) as file:
                seen = about["files"].get(path.name)
                identity = asdict(file.manifest.identity)
                if seen is not None and (seen["identity"], True) != (
                    identity,
                    seen["stamp"] <= file.manifest.stamp,
                ):
                    return self._rebuild()
                if seen is None or seen["stamp"] < file.manifest.stamp:
                    about["files"][path.name] = {"identity": identity, "stamp": file.manifest.stamp}
                    count += self._take(file, -1 if seen is None else seen["stamp"], about)
        return count

    def _take(self, file: StateFile, since: int, about: dict[str, Any]) -> int:
        """Index what has changed in a state file since a commit, and note the new position."""
        merges = self._source.about.merges
        found: list[tuple[str, Any]] = []
        gone: list[Range] = []
        for key, value, following in file.changed(since):
            if STATE <= key < _AFTER:
                name = _name(key)
                found.append((name, self._source.get(name) if merges else orjson.loads(value)))
            if since >= 0 and key < _AFTER and (following == b"" or following > STATE):
                first = _name(key) if key >= STATE else None
                gone.append((first, _name(following) if STATE <= following < _AFTER else None))
        if merges:
            kept = [(name, self._source.get(name)) for name in self._between(gone)]
            found += [(name, state) for name, state in kept if state is not None]
        self._store.write(self._items(found), about, gone=gone)
        return len(found)

    def _between(self, gone: list[Range]) -> Iterator[str]:
        """Indexed keys in these ranges: rows of merging projections may remain in another partition."""
        for name, _ in self._store.contents():
            if any(_lies(name, one) for one in gone):
                yield name

    def _items(self, found: Sequence[tuple[str, Any]]) -> list[Item]:
        texts = [(key, None if state is None else self._text(key, state)) for key, state in found]
        if self._embedder is None:
            return [Item(key, text) for key, text in texts]
        wanted = [text for _, text in texts if text is not None]
        vectors = iter(self._embedder.embed(wanted)) if wanted else iter(())
        return [Item(key, text, None if text is None else _unit(next(vectors))) for key, text in texts]

    def _rebuild(self) -> int:
        self._store.empty()
        about: dict[str, Any] = {"of": self._of(), "files": {}}
        count = 0
        for state in self._source.files():
            with closing(StateFile.open_to_read(state)) as file:
                manifest = file.manifest
                seen = {"identity": asdict(manifest.identity), "stamp": manifest.stamp}
                about["files"][state.name] = seen
                count += self._take(file, -1, about)
        if not about["files"]:
            self._store.write((), about)
        return count

    def _of(self) -> dict[str, Any]:
        """The identity (model, version, source) that an index must have to be used."""
        about = self._source.about
        embedder = None if self._embedder is None else self._embedder.name
        return {
            "version": self.version,
            "embedder": embedder,
            "projection": about.name,
            "of_version": about.version,
        }

    def _search(self, text: str, top_k: int) -> list[Hit]:
        if self._embedder is None:
            return self._store.find_words(text, top_k)
        [vector] = self._embedder.embed([text])
        return self._store.find_near(_unit(vector), top_k)


def _lies(name: str, between: Range) -> bool:
    first, last = between
    return (first is None or first < name) and (last is None or name < last)


def _name(key: bytes) -> str:
    return key[len(STATE) :].decode(errors="replace")


def _unit(vector: Sequence[float]) -> list[float]:
    """The vector scaled to length 1; a zero vector stays zero."""
    length = math.sqrt(sum(float(one) * float(one) for one in vector))
    return [float(one) / length for one in vector] if length else [0.0 for _ in vector]


def _texts(state: Any) -> Iterator[str]:
    if isinstance(state, str):
        if state.strip():
            yield state
    elif isinstance(state, dict):
        for value in state.values():
            yield from _texts(value)
    elif isinstance(state, list):
        for value in state:
            yield from _texts(value)
