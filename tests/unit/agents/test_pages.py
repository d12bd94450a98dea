"""Web pages that a question names: read by a tool, cited, labelled, and told where they cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agents.librarian import Librarian, LibrarianOptions
from agents.researcher import Researcher, ResearcherOptions
from agents.researcher.pages import addresses_in, found_on_page, without_addresses
from agents.researcher.toolkit import ResearcherToolkit
from noesium_stream.agent import AgentContext
from noesium_stream.client import Client
from noesium_stream.client.operate.replay import verify
from noesium_stream.client.operate.replay_target import agent_target
from noesium_stream.errors import RunFailedError
from noesium_stream.log import EventLog, open_log
from noesium_stream.tool import WebToolkit
from noesium_stream.worker import Worker
from tests.support.corpora import BRACKWATER
from tests.support.reading import PATIENCE_S
from tests.support.sites import Site, answer
from tests.support.web_tools import here

PAGE = """<html><head><title>Ferries</title></head><body><h1>Ferries of Brackwater</h1>
<p>The ferry to Skerry Island leaves the old pier at seven in the morning.</p>
<p>Bicycles travel free of charge.</p></body></html>"""
QUESTION = "When does the ferry to Skerry Island leave"


def researcher(site: Site) -> type[Researcher]:
    """A researcher that may read a site of this machine."""

    class Reading(Researcher):
        def __init__(self, options: Any, context: AgentContext) -> None:
            super().__init__(options, context)
            web = WebToolkit(resolver=here, allow_private=(site.host,))
            self.tools = (ResearcherToolkit(web),)  # type: ignore[misc]

    return Reading


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    yield log
    await log.close()


def worker(log: EventLog, home: Path, kind: type[Researcher], **options: Any) -> Worker:
    documents = (Librarian, LibrarianOptions(docs=BRACKWATER))
    return Worker(log, [documents, (kind, ResearcherOptions(web=True, **options))], home=home)


def asked(*addresses: str, question: str = QUESTION) -> dict[str, Any]:
    text = f"{question} ({', '.join(addresses)})?"
    return Researcher.input_from_question(text, ResearcherOptions(web=True))


async def called(run: Any) -> list[tuple[str, str]]:
    events = [event async for event in run.events() if event.event_type.startswith("tool.")]
    return [(event.event_type, event.payload["tool_name"]) for event in events]


def test_addresses_are_found_in_a_question_and_left_out_of_what_is_looked_for() -> None:
    text = "What do https://a.example/x_(y)?z=1, http://b.example/ and https://b.example. say of tides?"
    assert addresses_in(text) == ["https://a.example/x_(y)?z=1", "http://b.example/", "https://b.example"]
    assert without_addresses(text) == "What do , and . say of tides?"
    assert without_addresses("When (see https://a.example, [http://b.example])?") == "When (see , )?"
    assert (
        without_addresses("When does it leave (https://a.example, http://b.example)?")
        == "When does it leave ?"
    )
    assert addresses_in("https://a.example https://a.example https://" + "x" * 900) == ["https://a.example"]
    assert len(addresses_in(" ".join(f"https://{name}.example" for name in "abcde"))) == 3


def test_without_the_option_a_question_with_an_address_is_asked_as_before() -> None:
    text = "What does https://a.example say?"
    assert Researcher.input_from_question(text, ResearcherOptions()) == {"question": text, "corpus": None}


@pytest.mark.parametrize("text", ["", " \n ", "\0\ud800"])
def test_a_page_without_words_has_no_passages(text: str) -> None:
    [found] = found_on_page("https://a.example", "", "text/html", text, ["What is said?"], 5)
    assert found["passages"] == []


async def test_a_page_is_read_by_one_call_of_a_tool_and_cited(log: EventLog, tmp_path: Path) -> None:
    async with Site({"/": answer(PAGE, content_type="text/html")}) as site:
        kind, url = researcher(site), site.url("/")
        async with worker(log, tmp_path, kind), Client(log) as client:
            run = await client.start("researcher", asked(url))
            result = await run.result(timeout=PATIENCE_S)
            events = [event async for event in run.events() if event.event_type.startswith("tool.")]
            requests = len(site.asked)
            target = agent_target(kind, log, {"web": True}, tmp_path)
            assert (await verify(run, target)).difference is None
            assert len(site.asked) == requests, "a replay reads nothing"
    assert result["outcome"] == "answer"
    assert result["answer"].startswith("> The ferry to Skerry Island leaves the old pier at seven")
    assert result["sources"][0].startswith(f"[1] {url}")
    assert "unread" not in result
    assert [event.event_type for event in events] == ["tool.invoked", "tool.completed"]
    assert events[0].payload["input"]["url"] == url
    assert "web" in events[1].payload["labels"]


async def test_the_documents_answer_where_the_page_does_not(log: EventLog, tmp_path: Path) -> None:
    async with (
        Site({"/": answer(PAGE, content_type="text/html")}) as site,
        worker(log, tmp_path, researcher(site)),
        Client(log) as client,
    ):
        run = await client.start("researcher", asked(site.url("/"), question="What does SQLite survive"))
        result = await run.result(timeout=PATIENCE_S)
    assert not result["citations"][0]["path"].startswith("http")


async def test_a_page_that_cannot_be_read_is_told_and_the_documents_answer(
    log: EventLog, tmp_path: Path
) -> None:
    async with Site() as site:
        url = site.url("/gone")
        async with worker(log, tmp_path, researcher(site)), Client(log) as client:
            run = await client.start("researcher", asked(url, question="What does SQLite survive"))
            result = await run.result(timeout=PATIENCE_S)
            denied = await client.start("researcher", asked(url), permissions=["documents:read"])
            refused = await denied.result(timeout=PATIENCE_S)
            assert await called(denied) == [("tool.denied", "search_page")]
    assert result["found"]
    assert result["unread"] == {url: "The server answered with status 404."}
    assert f"Not read: {url}: " in result["answer"]
    assert "net:outbound:" in refused["unread"][url]
    assert not [one for one in site.asked if one.path == "/gone"][1:], "it was asked for once"


async def test_a_researcher_without_the_option_reads_no_page(log: EventLog, tmp_path: Path) -> None:
    documents = (Librarian, LibrarianOptions(docs=BRACKWATER))
    async with Worker(log, [documents, Researcher], home=tmp_path), Client(log) as client:
        run = await client.start("researcher", asked("https://a.example/"))
        result = await run.result(timeout=PATIENCE_S)
        assert await called(run) == []
        wrong = await client.start("researcher", {"question": QUESTION, "pages": ["file:///etc/passwd"]})
        with pytest.raises(RunFailedError, match="no list of addresses"):
            await wrong.result(timeout=PATIENCE_S)
    assert result["unread"] == {"https://a.example/": "this researcher was started without --web"}


async def test_a_finding_of_a_page_comes_from_the_web(log: EventLog, tmp_path: Path) -> None:
    async with Site({"/": answer(PAGE, content_type="text/html")}) as site:
        url = site.url("/")
        async with worker(log, tmp_path, researcher(site), remember=True), Client(log) as client:
            await (await client.start("researcher", asked(url))).result(timeout=PATIENCE_S)
            memory = client.memory("agent:researcher", home=tmp_path)
            [item] = await memory.query()
            assert item.value["citations"][0] == url
            await memory.durable.retract(f"web:{url}")
            assert await memory.query() == []
