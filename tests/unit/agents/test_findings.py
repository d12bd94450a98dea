"""Researcher and librarian that remember, across runs, with passages as sources."""

from __future__ import annotations

from pathlib import Path

from agents.librarian import Librarian, LibrarianOptions
from agents.researcher import Researcher, ResearcherOptions
from noesium_stream.client import Client
from noesium_stream.clock import to_datetime
from noesium_stream.event.envelope import AgentRef
from noesium_stream.log import open_log
from noesium_stream.memory import memory_of
from noesium_stream.memory.queries import why
from noesium_stream.worker import Worker
from tests.support.corpora import BRACKWATER, write_files
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


async def test_a_librarian_says_since_when_it_knows_a_query_and_from_which_documents(tmp_path: Path) -> None:
    docs = write_files(
        tmp_path / "docs",
        {"a.md": "# Tide\n\nThe tide turns twice a day.\n", "b.md": "# Rain\n\nIt rains.\n"},
    )
    log = await open_log("memory://")

    async def ask(query: str, *, remember: bool = True) -> dict[str, object]:
        options = LibrarianOptions(docs=docs, remember=remember)
        async with Worker(log, [(Librarian, options)], home=tmp_path / "home"), Client(log) as client:
            run = await client.start("librarian", {"query": query})
            result: dict[str, object] = await run.result(timeout=PATIENCE_S)
            return result

    memory = memory_of(log, tmp_path, AgentRef("test", "client", "local", "1"), "agent:librarian")
    assert "earlier" not in await ask("tide", remember=False)
    assert await memory.query() == []
    assert "earlier" not in await ask("tide")
    (item,) = await memory.query()
    # The label of the tool's result came by itself.
    assert {"document:a.md", "document:a.md#3-3", "label:document"} <= set(item.sources)
    assert (item.value["question"], item.value["answer"]) == ("tide", "The tide turns twice a day.")
    (because,) = why(memory.durable.store, "agent:librarian", item.key)
    assert (because.fact.id, because.role, because.status) == (item.id, "is", "live")
    again = await ask("Tide")
    assert again["earlier"] == {"since": to_datetime(item.at_ms).date().isoformat(), "same": True}
    assert [one.id for one in await memory.query()] == [item.id], "the same is not written again"

    write_files(docs, {"c.md": "# Mill\n\nThe mill follows the tide.\n"})
    assert (await ask("tide"))["earlier"] == {**again["earlier"], "same": False}  # type: ignore[dict-item]
    (newer,) = await memory.query()
    assert {"document:a.md", "document:c.md"} <= set(newer.sources)
    await memory.retract("document:a.md")
    assert "earlier" not in await ask("tide")
    memory.close()
    await log.close()
