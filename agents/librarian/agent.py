"""The librarian as an agent: indexes its folder when it starts, then answers `corpus.search`."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel, Field

from agents.documents.listing import checked_root, corpus_id
from agents.librarian.capability import CORPUS_SEARCH, DEFAULT_LIMIT, MOST_PASSAGES
from agents.librarian.index import CorpusIndex, is_damage
from agents.librarian.indexing import Summary, bring_up_to_date, count_of_files, skipped_lines
from noesium_stream.agent import AgentContext, BaseGraphicAgent
from noesium_stream.errors import CapabilityError, LogFullError
from noesium_stream.kernel import kernel_node
from noesium_stream.private_files import make_folder

_CORPUS_ID = re.compile(r"[a-z0-9-]{1,64}")


class LibrarianOptions(BaseModel):
    """What the librarian can be told."""

    docs: Path = Field(default=Path("."), description="Folder with the documents.")


class SearchState(TypedDict, total=False):
    """A search: its input, then its output."""

    query: str
    limit: int
    corpus: str | None
    output: dict[str, Any]


class Librarian(BaseGraphicAgent):
    """Finds passages in documents; serves its own folder and what was indexed under its home before."""

    agent_type = "librarian"
    version = "2.0.0"
    Options = LibrarianOptions
    capabilities = (CORPUS_SEARCH,)

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        self.options = LibrarianOptions.model_validate(options.model_dump())
        self._root = checked_root(self.options.docs)
        self._corpus = corpus_id(self._root)
        self._folder = context.home.expanduser().resolve() / "corpora"

    async def start(self) -> None:
        """Bring the index of the folder up to date.

        Raises:
            ConfigError: there are no documents in it.
            LogFullError: the disk is full.
        """
        summary = await self._bring_up_to_date()
        for line in _report(self._root, summary):
            self.context.progress(line)

    def get_state_class(self) -> type[Any]:
        """See `SearchState`."""
        return SearchState

    def _build_graph(self) -> StateGraph[Any, Any, Any, Any]:
        graph = StateGraph(SearchState)
        graph.add_node("search", self.search)
        graph.add_edge(START, "search")
        graph.add_edge("search", END)
        return graph

    def initial_state(self, input: dict[str, Any], capability_id: str | None) -> dict[str, Any]:
        """The input of `corpus.search`, with its defaults.

        Raises:
            CapabilityError: the query is empty, or the limit is no number between 1 and 100.
        """
        query, limit = input.get("query"), input.get("limit", DEFAULT_LIMIT)
        if not isinstance(query, str) or not query.strip():
            raise CapabilityError("corpus.search: the query is empty.", hint="Give words to look for.")
        if not isinstance(limit, int) or not 1 <= limit <= MOST_PASSAGES:
            raise CapabilityError(f"corpus.search: limit is {limit!r}, it must be from 1 to {MOST_PASSAGES}.")
        return {"query": query, "limit": limit, "corpus": input.get("corpus")}

    def result(self, state: dict[str, Any]) -> Any:
        """The output of `corpus.search`."""
        return state["output"]

    @classmethod
    def input_from_question(cls, question: str, options: BaseModel) -> dict[str, Any]:
        """A question from the command line is a query."""
        return {"query": question}

    @kernel_node(deterministic=False, entropy_sources=["index"])
    async def search(self, state: SearchState) -> dict[str, Any]:
        """Look the query up in the corpus."""
        corpus = state.get("corpus") or self._corpus
        index = self._index(corpus)
        query, limit = state["query"], state.get("limit", DEFAULT_LIMIT)
        try:
            output = await asyncio.to_thread(index.search, query, limit)
        except sqlite3.DatabaseError as error:
            if not is_damage(error) or corpus != self._corpus:
                raise
            self.context.progress(f"the index {index.path} is damaged and is made anew")
            await self._bring_up_to_date()
            output = await asyncio.to_thread(index.search, query, limit)
        return {"output": {"corpus": corpus, **output}}

    def _index(self, corpus: str) -> CorpusIndex:
        """The index of a corpus.

        Raises:
            CapabilityError: there is none of this id under this home.
        """
        path = self._folder / f"{corpus}.db"
        # the id comes from outside: it must not lead out of the folder
        if not _CORPUS_ID.fullmatch(corpus) or (corpus != self._corpus and not path.is_file()):
            raise CapabilityError(
                f"There is no corpus {corpus!r} at this librarian, whose documents are in {self._root}.",
                hint=f"Its own is {self._corpus!r}. For another folder start a librarian with --docs DIR.",
            )
        return CorpusIndex(path)

    async def _bring_up_to_date(self) -> Summary:
        loop = asyncio.get_running_loop()
        stop = threading.Event()

        def progress(line: str) -> None:
            loop.call_soon_threadsafe(self.context.progress, line)

        make_folder(self._folder)
        work = asyncio.create_task(
            asyncio.to_thread(
                bring_up_to_date,
                self._root,
                CorpusIndex(self._folder / f"{self._corpus}.db"),
                clock=self.context.clock,
                progress=progress,
                stop=stop,
                leave_out=[self.context.home],
            )
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            # a thread cannot be cancelled: tell it, and wait for the batch that it is in
            stop.set()
            await asyncio.gather(work, return_exceptions=True)
            raise
        except sqlite3.OperationalError as error:
            if "full" not in str(error):
                raise
            raise LogFullError(
                f"The disk is full under {self._folder}, where the index is kept.",
                hint="Make room, or set NOESIUM_HOME to a folder on another disk.",
            ) from error


def _report(root: Path, summary: Summary) -> list[str]:
    documents = f"{summary.documents:,} document" + ("" if summary.documents == 1 else "s")
    changes = f"{summary.read:,} read, {summary.unchanged:,} unchanged"
    if summary.removed:
        changes += f", {summary.removed:,} removed"
    passages = f"{summary.passages:,} passage" + ("" if summary.passages == 1 else "s")
    first = f"{documents} in {root} ({changes}), {passages}"
    if not summary.tried and summary.skipped:
        return [f"{first}; {count_of_files(len(summary.skipped))} skipped"]  # named when they were first seen
    return [first, *skipped_lines(summary)]
