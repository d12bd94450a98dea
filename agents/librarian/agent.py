"""The librarian as an agent: indexes its folder when it starts, then answers `corpus.search`.

A search is a tool call: judged, and on the log with what it found. With `--remember` it keeps in its memory
what was asked and which passages of which documents it answered with, and says of a query that comes again
since when it is known, and whether it finds the same as then.
"""

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
from agents.librarian.toolkit import CORPUS_ID, LibrarianToolkit
from noesium_stream.agent import AgentContext, BaseGraphicAgent
from noesium_stream.agent.findings import Findings, places_of
from noesium_stream.errors import CapabilityError, LogFullError
from noesium_stream.kernel import current_step, kernel_node
from noesium_stream.private_files import make_folder

_CORPUS_ID = re.compile(CORPUS_ID)


class LibrarianOptions(BaseModel):
    """What the librarian can be told."""

    docs: Path = Field(default=Path("."), description="Folder with the documents.")
    remember: bool = Field(
        default=False, description="Remember answers with their passages, and say what was answered before."
    )


class SearchState(TypedDict, total=False):
    """A search: its input, then its output."""

    query: str
    limit: int
    corpus: str | None
    output: dict[str, Any]


class Librarian(BaseGraphicAgent):
    """Finds passages in documents; serves its own folder and what was indexed under its home before."""

    agent_type = "librarian"
    version = "2.1.0"
    Options = LibrarianOptions
    capabilities = (CORPUS_SEARCH,)
    permissions = ("documents:read",)

    def __init__(self, options: BaseModel, context: AgentContext) -> None:
        super().__init__(options, context)
        self.options = LibrarianOptions.model_validate(options.model_dump())
        self._root = checked_root(self.options.docs)
        self.corpus = corpus_id(self._root)
        self._folder = context.home.expanduser().resolve() / "corpora"
        # Of the instance: it searches this worker's indexes.
        self.tools = (LibrarianToolkit(self.find),)  # type: ignore[misc]

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
        query, limit = state["query"], state.get("limit", DEFAULT_LIMIT)
        corpus = state.get("corpus") or self.corpus
        self._check(corpus)
        output = await current_step().tool("search_corpus", query=query, limit=limit, corpus=corpus)
        return {"output": await self._known(query, corpus, output) if self.options.remember else output}

    async def find(self, query: str, limit: int, corpus: str) -> dict[str, Any]:
        """The output of `corpus.search`, from the index of the corpus.

        Raises:
            CapabilityError: there is none of this id under this home.
        """
        index = self._index(corpus)
        try:
            output = await asyncio.to_thread(index.search, query, limit)
        except sqlite3.DatabaseError as error:
            if not is_damage(error) or corpus != self.corpus:
                raise
            self.context.progress(f"the index {index.path} is damaged and is made anew")
            await self._bring_up_to_date()
            output = await asyncio.to_thread(index.search, query, limit)
        return {"corpus": corpus, **output}

    async def _known(self, query: str, corpus: str, output: dict[str, Any]) -> dict[str, Any]:
        """The output with what is remembered of the query; what is found now is remembered if it is new."""
        findings, passages = Findings(self.memory), output["passages"]
        before = await findings.recall(query, corpus)
        same = before is not None and before["citations"] == places_of(passages)
        if passages and not same:
            await findings.remember(query, passages[0]["text"], passages, corpus)
        if before is None:
            return output
        return {**output, "earlier": {"since": before["since"], "same": same}}

    def _check(self, corpus: str) -> None:
        """Refuse what is no id of a corpus: it comes from outside, and must not lead out of the folder.

        Raises:
            CapabilityError
        """
        if not _CORPUS_ID.fullmatch(corpus):
            raise self._no_corpus(corpus)

    def _index(self, corpus: str) -> CorpusIndex:
        """The index of a corpus.

        Raises:
            CapabilityError: there is none of this id under this home.
        """
        self._check(corpus)
        path = self._folder / f"{corpus}.db"
        if corpus != self.corpus and not path.is_file():
            raise self._no_corpus(corpus)
        return CorpusIndex(path)

    def _no_corpus(self, corpus: str) -> CapabilityError:
        return CapabilityError(
            f"There is no corpus {corpus!r} at this librarian, whose documents are in {self._root}.",
            hint=f"Its own is {self.corpus!r}. For another folder start a librarian with --docs DIR.",
        )

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
                CorpusIndex(self._folder / f"{self.corpus}.db"),
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
