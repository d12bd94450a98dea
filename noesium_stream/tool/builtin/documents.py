"""The built-in toolkit `documents`: finds and reads passages of a folder of documents.

It uses the index of the librarian (`agents.librarian`), and shares it with librarians of the same folder.
A document is read from the index: a path that a model gives opens no file.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, TypeVar

from pydantic import Field
from typing_extensions import TypedDict

from noesium_stream.clock import SystemClock
from noesium_stream.config import load_config
from noesium_stream.errors import ConfigError, ToolExecutionError, ToolInputError
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.shipped_agents import lend
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.builtin.files_walk import Room
from noesium_stream.tool.extra import missing_extra
from noesium_stream.tool.function import tool
from noesium_stream.tool.toolkit import AsyncBaseToolkit, ToolkitConfig, register_toolkit

T = TypeVar("T")

MAX_PASSAGES: Final = 50
_MAX_NUMBER: Final = 10_000_000


class Passage(TypedDict):
    """A passage of a document. Lines, from 1, are null in a PDF; `page`, from 1, is null elsewhere."""

    number: int
    heading: str
    text: str
    first_line: int | None
    last_line: int | None
    page: int | None


class FoundPassage(TypedDict):
    """A passage that was found. `score` compares within one search only."""

    path: str
    title: str
    heading: str
    text: str
    first_line: int | None
    last_line: int | None
    page: int | None
    score: float


class Document(TypedDict):
    """A document, or a part of it. `next` is the passage where to go on; null at the end."""

    path: str
    title: str
    passages: list[Passage]
    next: int | None


class DocumentsConfig(ToolkitConfig):
    """Settings of the toolkit `documents`, set by an operator.

    Attributes:
        docs: the folder, relative to the working directory of the process.
        name: of the folder in permissions, and the beginning of the tools' names if it is another one.
        home: below it the index is kept; None: the home of the settings.
        refresh_s: seconds after which a search looks for changed documents again.
    """

    docs: Path
    name: str = Field("documents", pattern=r"^[a-z][a-z0-9_]{0,31}$")
    home: Path | None = None
    refresh_s: float = Field(60.0, ge=0)


@register_toolkit("documents")
class DocumentsToolkit(AsyncBaseToolkit):
    """Tools that search and read a folder of documents: Markdown, text, HTML, PDF, source code and others.

    Results carry the label `document`.
    """

    Config: ClassVar[type[ToolkitConfig]] = DocumentsConfig
    source: ClassVar[ToolSource] = ToolSource.BUILTIN
    config: DocumentsConfig

    def __init__(self, config: ToolkitConfig | None = None, **settings: Any) -> None:
        super().__init__(config, **settings)
        self._clock = SystemClock()
        self._index: Any = None
        self._looked = 0.0
        self._looking = asyncio.Lock()

    def tools(self) -> list[AtomicTool]:
        """`search_documents` and `read_document`, or `search_NAME` and `read_NAME`."""
        name = self.config.name
        found = [replace(one, permissions=(f"documents:read:{name}",)) for one in super().tools()]
        if name == "documents":
            return found
        return [replace(one, name=f"{one.name.partition('_')[0]}_{name}") for one in found]

    async def start(self) -> None:
        """Bring the index up to date.

        Raises:
            ConfigError: the folder has no documents, or the extra `agents` is not installed.
        """
        await self._refresh()

    @tool(side_effects=SideEffectClass.PURE, labels=("document",), tags=("category:documents",), timeout=120)
    async def search_documents(
        self,
        query: Annotated[str, Field(min_length=1, max_length=1_000)],
        most: Annotated[int, Field(ge=1, le=MAX_PASSAGES)] = 8,
    ) -> list[FoundPassage]:
        """Find passages of the documents by words and by meaning, the best first.

        The query is a question, words, or a "phrase".
        """
        if not query.strip():
            raise ToolInputError("The query has no words.")
        found = await self._asked(lambda index: index.search(query, most))
        room, passages = Room(), []
        for one in found["passages"]:
            passage: FoundPassage = {
                "path": one["path"],
                "title": one["title"],
                "heading": one["heading"],
                "text": one["text"],
                "first_line": one["start_line"],
                "last_line": one["end_line"],
                "page": one["page"],
                "score": one["score"],
            }
            if not room.takes(passage):
                break
            passages.append(passage)
        return passages

    @tool(side_effects=SideEffectClass.PURE, labels=("document",), tags=("category:documents",), timeout=120)
    async def read_document(
        self,
        path: Annotated[str, Field(min_length=1, max_length=4_096, description="As a search gives it.")],
        first: Annotated[int, Field(ge=0, le=_MAX_NUMBER)] = 0,
    ) -> Document:
        """Read a document, passage by passage, without its markup.

        Where the result has `next`, call again with it as `first`.
        """
        found = await self._asked(lambda index: index.passages_of(path, first, MAX_PASSAGES))
        if found is None:
            raise ToolInputError(f"There is no document {short(path)}.", hint="Search for it first.")
        title, count, rows = found
        room, passages = Room(), []
        for number, heading, text, first_line, last_line, page in rows:
            passage: Passage = {
                "number": number,
                "heading": heading,
                "text": text,
                "first_line": first_line,
                "last_line": last_line,
                "page": page,
            }
            if not room.takes(passage):
                break
            passages.append(passage)
        after = passages[-1]["number"] + 1 if passages else count
        return {"path": path, "title": title, "passages": passages, "next": after if after < count else None}

    async def _asked(self, ask: Callable[[Any], T]) -> T:
        """What the index answers; one that is damaged is made anew."""
        if self._index is None or self._clock.monotonic() - self._looked > self.config.refresh_s:
            await self._refresh()
        try:
            return await asyncio.to_thread(ask, self._index)
        except sqlite3.DatabaseError as error:
            if not _librarian("agents.librarian.index").is_damage(error):
                raise ToolExecutionError(
                    f"The index of {self.config.docs} cannot be read: {error}."
                ) from error
        await self._refresh()
        return await asyncio.to_thread(ask, self._index)

    async def _refresh(self) -> None:
        async with self._looking:
            stop = threading.Event()
            work = asyncio.create_task(asyncio.to_thread(self._bring_up_to_date, stop))
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                # a thread cannot be cancelled: tell it, and wait for the batch that it is in
                stop.set()
                await asyncio.gather(work, return_exceptions=True)
                raise
            self._looked = self._clock.monotonic()

    def _bring_up_to_date(self, stop: threading.Event) -> None:
        listing, index = _librarian("agents.documents.listing"), _librarian("agents.librarian.index")
        indexing = _librarian("agents.librarian.indexing")
        home = (self.config.home or load_config().home).expanduser().resolve()
        try:
            root = listing.checked_root(self.config.docs)
            found = index.CorpusIndex(home / "corpora" / f"{listing.corpus_id(root)}.db")
            indexing.bring_up_to_date(
                root, found, clock=self._clock, progress=_untold, stop=stop, leave_out=[home]
            )
        except ConfigError as error:
            raise ConfigError(
                f"The toolkit documents: {error.message}", hint="Name the folder in DocumentsToolkit(docs=…)."
            ) from None
        self._index = found


def _untold(line: str) -> None:
    """Progress that nobody waits for."""


def _librarian(module: str) -> Any:
    """A module of the librarian.

    Raises:
        ConfigError: the extra `agents` is not installed.
        AgentLoadError: another package hides it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("agents"):
            raise missing_extra("The toolkit documents", error.name, "agents") from None
    if not lend(module):
        raise ConfigError(f"{module} did not come with this package.", hint="Install the package as a whole.")
    return import_module(module)
