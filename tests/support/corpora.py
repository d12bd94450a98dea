"""Corpora for tests: indexed folders, and a researcher that asks an index without a log between them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.documents.listing import corpus_id
from agents.librarian.index import CorpusIndex
from agents.librarian.indexing import Summary, bring_up_to_date
from agents.researcher.agent import PASSAGES_PER_QUERY, Researcher, ResearcherOptions
from noesium_stream.agent import AgentContext
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import EventLog

BRACKWATER = Path(__file__).parents[1] / "data" / "brackwater"


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write `files` (relative path -> content) below `folder`."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            path.write_bytes(content)
    return folder


class Corpus:
    """A folder and its index."""

    def __init__(self, root: Path, home: Path, clock: Clock | None = None) -> None:
        self.root = root
        self.index = CorpusIndex(home / "corpora" / f"{corpus_id(root)}.db")
        self.stop = threading.Event()
        self.lines: list[str] = []
        self._clock = clock or SystemClock()

    def update(self) -> Summary:
        """Bring the index up to date."""
        return bring_up_to_date(
            self.root, self.index, clock=self._clock, progress=self.lines.append, stop=self.stop
        )

    def paths(self, query: str) -> list[str]:
        """Paths of the passages found for `query`, best first."""
        return [passage["path"] for passage in self.index.search(query, 50)["passages"]]

    def counts(self, query: str) -> dict[str, int]:
        """In how many passages each word of `query` occurs."""
        counts: dict[str, int] = self.index.search(query, 1)["counts"]
        return counts


class LocalResearcher(Researcher):
    """The researcher's graph with a librarian that is a function call away."""

    def __init__(self, index: CorpusIndex, log: EventLog | None = None) -> None:
        ref = AgentRef(agent_id="researcher", agent_type="researcher", runtime_id="test", instance_id="1")
        context = AgentContext(Path(), log, SystemClock(), ref, lambda line: None)  # type: ignore[arg-type]
        super().__init__(ResearcherOptions(), context)
        self.index = index
        self.asked: list[str] = []

    async def look_up(self, query: str, corpus: str | None) -> dict[str, Any]:
        self.asked.append(query)
        return self.index.search(query, PASSAGES_PER_QUERY)

    async def ask(self, question: str) -> dict[str, Any]:
        """The result of a run."""
        state = await self.graph.ainvoke(self.initial_state({"question": question}, None))
        outcome: dict[str, Any] = self.result(state)
        return outcome
