"""The librarian's tool: the search of a corpus, as a call that is judged and on the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from agents.librarian.capability import MOST_PASSAGES
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import AtomicTool, BaseToolkit, ToolSource, tool

CORPUS_ID: Final = r"[a-z0-9-]{1,64}"

Find = Callable[[str, int, str], Awaitable[dict[str, Any]]]
"""Finds passages: query, limit, corpus."""


class LibrarianToolkit(BaseToolkit):
    """What the librarian does outside: it reads the indexes of corpora, each with a permission of its own.

    Args:
        find: searches an index.
    """

    name: ClassVar[str] = "librarian"
    source: ClassVar[ToolSource] = ToolSource.USER

    def __init__(self, find: Find) -> None:
        super().__init__()
        self._find = find

    def tools(self) -> list[AtomicTool]:
        """`search_corpus`, whose result stays whole: the graph hands on all of it."""
        return [replace(one, whole=True) for one in super().tools()]

    @tool(
        side_effects=SideEffectClass.PURE,
        permissions=("documents:read:{corpus}",),
        labels=("document",),
        tags=("category:documents",),
        timeout=120,
    )
    async def search_corpus(
        self,
        query: Annotated[str, Field(min_length=1)],
        limit: Annotated[int, Field(ge=1, le=MOST_PASSAGES)],
        corpus: Annotated[str, Field(pattern=f"^{CORPUS_ID}$")],
    ) -> dict[str, Any]:
        """Find the passages of a corpus for a query, by its words and by its meaning, the best first."""
        return await self._find(query, limit, corpus)
