"""The researcher's tool: the reading of a web page that a question names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from agents.researcher.pages import MAX_ADDRESS, found_on_page
from noesium_stream.errors import ToolExecutionError
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool import AtomicTool, BaseToolkit, ToolContext, ToolSource, WebToolkit, tool

_MAX_QUERIES: Final = 8
_ERRORS: Final = 400
"""From this status on an answer is not the page."""


class ResearcherToolkit(BaseToolkit):
    """What the researcher does itself: it reads pages of the web. Documents are the librarian's.

    Args:
        web: fetches pages.
    """

    name: ClassVar[str] = "researcher"
    source: ClassVar[ToolSource] = ToolSource.USER

    def __init__(self, web: WebToolkit | None = None) -> None:
        super().__init__()
        self._web = web or WebToolkit()

    def tools(self) -> list[AtomicTool]:
        """`search_page`, whose result stays whole: the graph uses all of it."""
        return [replace(one, whole=True) for one in super().tools()]

    @tool(
        side_effects=SideEffectClass.PURE,
        permissions=("net:outbound:{url|host}",),
        labels=("web",),
        tags=("category:web",),
        timeout=120,
    )
    async def search_page(
        self,
        url: Annotated[str, Field(min_length=1, max_length=MAX_ADDRESS)],
        queries: Annotated[list[str], Field(min_length=1, max_length=_MAX_QUERIES)],
        limit: Annotated[int, Field(ge=1, le=100)],
        context: ToolContext,
    ) -> dict[str, Any]:
        """Fetch a page of the web and find its passages for each query, the best first."""
        page = await self._web.fetch(url, context)
        if page["status"] >= _ERRORS:
            raise ToolExecutionError(f"The server answered with status {page['status']}.")
        text = page["title"], page["content_type"], page["text"]
        found = await asyncio.to_thread(found_on_page, url, *text, queries, limit)
        return {"url": page["url"], "found": found}
