"""`MemoryManager`: working memory, durable memory and search behind one name (RFC-1001 §9.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from noesium_stream.kernel.step.position import enclosing_step
from noesium_stream.log.port import Position
from noesium_stream.memory.durable import DurableMemory, as_effect
from noesium_stream.memory.ephemeral import EphemeralMemory
from noesium_stream.memory.item import MemoryFilter, MemoryItem
from noesium_stream.memory.semantic import SearchResult, SemanticMemory
from noesium_stream.memory.writing import Source

SEARCH: Final = "memory.search"


@dataclass(frozen=True)
class MemoryManager:
    """An agent's memory: `BaseAgent.memory`. `at` gives that of another scope.

    Attributes:
        durable: what outlives the run.
        semantic: the search in it.
        ephemeral: the run's working memory.
    """

    durable: DurableMemory
    semantic: SemanticMemory
    ephemeral: EphemeralMemory = field(default_factory=EphemeralMemory)

    def close(self) -> None:
        """Close the local files. Idempotent; the next use opens them again."""
        self.semantic.close()
        self.durable.store.close()

    def at(self, scope: str) -> MemoryManager:
        """The memory of another scope; see `DurableMemory.at`."""
        return replace(self, durable=self.durable.at(scope))

    def said(self, source: Source, said_by: str) -> MemoryManager:
        """The same memory, in which all that is written comes from a source as well, and was said by one."""
        return replace(self, durable=replace(self.durable, origins=(source,), speaker=said_by))

    async def write(self, key: str, value: Any, metadata: dict[str, Any] | None = None, **more: Any) -> str:
        """See `DurableMemory.write`."""
        return await self.durable.write(key, value, metadata, **more)

    async def store(self, key: str, value: Any, durable: bool = True) -> None:
        """Remember a value: for good, or for this run alone."""
        if durable:
            await self.durable.write(key, value)
        else:
            self.ephemeral.set(key, value)

    async def recall(self, key: str) -> Any | None:
        """The value of a key: of the run's working memory, else of the durable one; None: there is none."""
        if enclosing_step() is not None and self.ephemeral.has(key):
            return self.ephemeral.get(key)
        return await self.durable.read(key)

    async def query(self, filter: MemoryFilter | None = None) -> list[MemoryItem]:
        """See `DurableMemory.query`."""
        return await self.durable.query(filter)

    async def search(
        self, query: str, top_k: int = 5, *, scopes: Sequence[str] | None = None
    ) -> list[SearchResult]:
        """The items that match a text best, best first; in a node an effect, so that a replay finds the same.

        Args:
            query: what is looked for.
            top_k: most results, 1 to 200.
            scopes: where; None: this memory's scope.

        Raises:
            AgentMemoryError: `top_k` is not possible.
            MemoryScopeError: as `DurableMemory.at`.
            LogUnavailableError, LogTruncatedError, ProjectionError: as `DurableMemory.recall`.
        """
        durable = self.durable
        allowed = [durable.scope] if scopes is None else [durable.at(scope).scope for scope in scopes]

        async def find() -> list[Any]:
            results = await self.found(query, top_k, allowed)
            return [[result.item.to_json(), result.score] for result in results]

        found = await as_effect(SEARCH, find, {"query": query, "top_k": top_k, "scopes": allowed})
        return [SearchResult(MemoryItem.from_json(item), score) for item, score in found]

    async def found(self, query: str, top_k: int, scopes: Sequence[str] | None = None) -> list[SearchResult]:
        """As `search`, within an effect of the caller's own."""
        await self.durable.store.catch_up(self.durable.log)
        await self.semantic.refresh()
        return await self.semantic.search(query, top_k, scopes=scopes or [self.durable.scope])

    async def delete(self, key: str, *, reason: str | None = None) -> None:
        """See `DurableMemory.delete`."""
        await self.durable.delete(key, reason=reason)

    async def retract(self, source: Source, *, reason: str | None = None) -> None:
        """See `DurableMemory.retract`."""
        await self.durable.retract(source, reason=reason)

    async def as_of(self, moment: datetime | Position, key: str | None = None) -> list[MemoryItem]:
        """See `DurableMemory.as_of`."""
        return await self.durable.as_of(moment, key)
