"""`LogVectorStore`: LangChain's `VectorStore` over memory (RFC-1001 §5, `vector_store`).

Documents are facts: a document that is added in a node commits with the step, and what a search has found is
recorded. The vectors are in an index that is made anew whenever it does not match.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from noesium_stream.clock import SystemClock
from noesium_stream.errors import AgentMemoryError
from noesium_stream.kernel.step.position import enclosing_step
from noesium_stream.kernel.step.step import current_step
from noesium_stream.memory.durable import as_effect
from noesium_stream.memory.item import MemoryItem
from noesium_stream.memory.manager import SEARCH, MemoryManager
from noesium_stream.memory.semantic import MAX_TOP, SEARCHED, SearchResult, SemanticMemory

_T = TypeVar("_T")
_TEXT: Final = "text"
READ: Final = "memory.documents"


class _Embedder:
    """A model of LangChain as the index wants one."""

    def __init__(self, embeddings: Embeddings, name: str) -> None:
        self._embeddings = embeddings
        self.name = name

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """See `Embedder.embed`."""
        return self._embeddings.embed_documents(list(texts))


class LogVectorStore(VectorStore):
    """See the module. A search is by meaning and by words, joined by reciprocal ranks.

    Args:
        memory: whose documents they are.
        embedding: makes the vectors.
        name: of the model, with its version: vectors of another name are not compared with these.
        collection: documents of another collection are not found.
    """

    def __init__(
        self, memory: MemoryManager, embedding: Embeddings, *, name: str, collection: str = "documents"
    ) -> None:
        if not collection or "/" in collection:
            raise AgentMemoryError(f"{collection!r} is no name of a collection.", hint="Give one without /.")
        embedder = _Embedder(embedding, name)
        self._memory = replace(memory, semantic=SemanticMemory(memory.durable.store, embedder))
        self._embedding = embedding
        self._collection = collection
        self._loop = asyncio.get_running_loop()

    @property
    def embeddings(self) -> Embeddings:
        """What makes the vectors."""
        return self._embedding

    async def aadd_documents(self, documents: list[Document], **more: Any) -> list[str]:
        """Add documents; one whose id is known takes the place of that one. Return their ids.

        Args:
            documents: documents; without an id one gets a new one.
            more: `ids`, in place of the documents' own.

        Raises:
            AgentMemoryError, StateError: as `DurableMemory.write`.
        """
        ids = more.get("ids") or [document.id for document in documents]
        if len(ids) != len(documents):
            raise AgentMemoryError(f"{len(documents)} documents have {len(ids)} ids.")
        place = enclosing_step()
        new_id = SystemClock().uuid7 if place is None else place.uuid
        given = [one or new_id() for one in ids]
        for document, one in zip(documents, given, strict=True):
            value = {_TEXT: document.page_content, "metadata": document.metadata}
            await self._memory.durable.write(self._key(one), value, {SEARCHED: _TEXT})
        return given

    async def aadd_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **more: Any
    ) -> list[str]:
        """Add texts; see `aadd_documents`."""
        given = list(texts)
        each = metadatas or [{} for _ in given]
        documents = [Document(text, metadata=one) for text, one in zip(given, each, strict=True)]
        return await self.aadd_documents(documents, **more)

    async def adelete(self, ids: list[str] | None = None, **more: Any) -> bool | None:
        """Delete documents; ids that are not known are passed over."""
        for one in ids or ():
            await self._memory.durable.delete(self._key(one))
        return True

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents of these ids that there are, in this order."""

        async def find() -> list[Any]:
            found = [await self._memory.durable.found_key(self._key(one)) for one in ids]
            return [item.to_json() for item in found if item is not None]

        items = await as_effect(READ, find, {"ids": list(ids), "collection": self._collection})
        return [self._document(MemoryItem.from_json(item)) for item in items]

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **more: Any
    ) -> list[tuple[Document, float]]:
        """The documents that match a text best, best first, with scores.

        Args:
            query: what is looked for.
            k: most documents, 1 to 200.
            more: `filter`, values of the metadata by name. Scores compare within one search alone.
        """
        wanted = more.get("filter") or {}

        async def find() -> list[Any]:
            results = await self._memory.found(query, MAX_TOP)
            kept = [one for one in results if self._fits(one, wanted)]
            return [[one.item.to_json(), one.score] for one in kept[:k]]

        asked = {"query": query, "k": k, "filter": wanted, "collection": self._collection}
        found = await as_effect(SEARCH, find, asked)
        return [(self._document(MemoryItem.from_json(item)), score) for item, score in found]

    async def asimilarity_search(self, query: str, k: int = 4, **more: Any) -> list[Document]:
        """As `asimilarity_search_with_score`, without the scores."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **more)]

    def add_documents(self, documents: list[Document], **more: Any) -> list[str]:
        """See `aadd_documents`; the synchronous methods are for sync nodes and for threads."""
        return self._wait(self.aadd_documents(documents, **more))

    def add_texts(
        self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **more: Any
    ) -> list[str]:
        """See `aadd_texts`."""
        return self._wait(self.aadd_texts(texts, metadatas, **more))

    def delete(self, ids: list[str] | None = None, **more: Any) -> bool | None:
        """See `adelete`."""
        return self._wait(self.adelete(ids, **more))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """See `aget_by_ids`."""
        return self._wait(self.aget_by_ids(ids))

    def similarity_search(self, query: str, k: int = 4, **more: Any) -> list[Document]:
        """See `asimilarity_search`."""
        return self._wait(self.asimilarity_search(query, k, **more))

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        **more: Any,
    ) -> LogVectorStore:
        """Make a store with these texts; `memory` and `name` are needed, as for the class."""
        store = cls(more.pop("memory"), embedding, name=more.pop("name"))
        store.add_texts(texts, metadatas, **more)
        return store

    def _wait(self, call: Coroutine[Any, Any, _T]) -> _T:
        if enclosing_step() is not None:
            return current_step().run_sync(call)
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            call.close()
            raise AgentMemoryError(
                "A vector store on the log is asked on the event loop, which must not be blocked.",
                hint="Use its asynchronous methods: aadd_documents, asimilarity_search, adelete.",
            )
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _fits(self, found: SearchResult, wanted: dict[str, Any]) -> bool:
        value = found.item.value
        if not found.item.key.startswith(self._key("")) or not isinstance(value, dict):
            return False
        return wanted.items() <= (value.get("metadata") or {}).items()

    def _key(self, document_id: str) -> str:
        return f"{self._collection}/{document_id}"

    def _document(self, item: MemoryItem) -> Document:
        value = item.value if isinstance(item.value, dict) else {}
        return Document(
            str(value.get(_TEXT, "")),
            id=item.key.removeprefix(self._key("")),
            metadata=value.get("metadata") or {},
        )
