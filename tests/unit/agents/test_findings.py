"""A researcher that remembers: across runs, with passages as sources, and nothing else where it does not."""

from __future__ import annotations

from pathlib import Path

from agents.librarian import Librarian, LibrarianOptions
from agents.researcher import Researcher, ResearcherOptions
from noesium_stream.client import Client
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.memory import memory_of
from noesium_stream.worker import Worker
from tests.support.corpora import BRACKWATER
from tests.support.reading import PATIENCE_S

QUESTION = "What does SQLite survive?"


async def test_an_answer_is_remembered_with_its_passages_and_gone_with_one_of_them(tmp_path: Path) -> None:
    log = await open_log("memory://")
    agents = [
        (Librarian, LibrarianOptions(docs=BRACKWATER)),
        (Researcher, ResearcherOptions(remember=True)),
    ]
    async with Worker(log, agents, home=tmp_path), Client(log) as client:

        async def ask(question: str) -> dict[str, object]:
            run = await client.start("researcher", {"question": question})
            result: dict[str, object] = await run.result(timeout=PATIENCE_S)
            return result

        first = await ask(QUESTION)
        assert "earlier" not in first
        again = await ask("What  does SQLite survive?")
        assert again["citations"] == first["citations"]
        assert str(again["answer"]).startswith(str(first["answer"]))
        assert "Answered like this on " in str(again["answer"])
        memory = memory_of(log, tmp_path, AgentRef("test", "client", "local", "1"), "agent:researcher")
        (item,) = await memory.query()
        assert "document:docs/architecture.md" in item.sources
        assert any(source.startswith("document:docs/architecture.md#") for source in item.sources)
        await memory.retract("document:docs/architecture.md")
        assert "earlier" not in await ask(QUESTION)
        memory.close()
    await log.close()
