"""The researcher's worker killed at every event that it writes: the answer and its citations stay the same.

Both agents are the real ones. In the sweep the librarian's worker lives on beside the one that dies; with a
process and SIGKILL both die with it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.librarian import AGENT as LIBRARIAN
from agents.librarian.agent import LibrarianOptions
from agents.researcher import AGENT as RESEARCHER
from agents.researcher.agent import ResearcherOptions
from noesium_stream.client import Client
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.testing import Rehearsal
from noesium_stream.worker import Worker
from tests.support.chosen import one_of
from tests.support.command import Folder
from tests.support.corpora import write_files
from tests.support.pages import ROOT
from tests.support.reading import PATIENCE_S
from tests.support.striking import strike_at

DOCUMENTS = {
    "dam.md": "# The dam\n\nThe dam of Lusk was finished in 1931. It is 42 m high.\n\n"
    "## Repairs\n\nThe spillway was repaired in 1977 after a flood had damaged its gates.\n",
    "notes/gates.txt": "The gates are opened when the water stands at 38 m.\n\nEach weighs nine tonnes.\n",
    "keeper.rst": "The keeper\n==========\n\nAnna Brink has been the keeper since 2009.\n",
}
QUESTIONS = {
    "found": "When was the spillway repaired after the flood?",
    "asked-again": "Who looks after the flood_barrier at night?",
}
EVENTS = {"found": 18, "asked-again": 30}


@asynccontextmanager
async def researching(home: Path, docs: Path, number: int = 0) -> AsyncIterator[Rehearsal]:
    """The researcher in a rehearsal, the librarian in a worker of its own, on a SQLite log of their own."""
    url = f"sqlite:///{home}/{number}.db?partitions=1&synchronous=NORMAL"
    options = LibrarianOptions(docs=docs)
    async with (
        Rehearsal(RESEARCHER, log=url) as rehearsal,
        Worker(rehearsal.log, [(LIBRARIAN, options)], home=home / "librarian", clock=rehearsal.clock),
    ):
        yield rehearsal


async def research(rehearsal: Rehearsal, question: str, docs: Path) -> tuple[Any, list[EventEnvelope]]:
    """The run's result and its journal."""
    input_ = RESEARCHER.input_from_question(question, ResearcherOptions(docs=docs))
    run = await rehearsal.start(input_)
    return await run.result(timeout=PATIENCE_S), await run.history()


async def asked_of_the_librarian(client: Client) -> int:
    return sum(run.agent_type == "librarian" for run in await client.list_runs())


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("docs"), DOCUMENTS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Where nothing dies."""
    return Folder(ROOT, NOESIUM_HOME=str(tmp_path_factory.mktemp("alone")))


@pytest.mark.parametrize("reaches_log", one_of(2, [False, True]), ids=["before", "after"])
@pytest.mark.parametrize("kind", list(QUESTIONS))
async def test_a_death_at_any_event_of_the_researcher_changes_nothing(
    tmp_path: Path, docs: Path, kind: str, reaches_log: bool
) -> None:
    async with researching(tmp_path, docs) as rehearsal:
        undisturbed, history = await research(rehearsal, QUESTIONS[kind], docs)
        searches = await asked_of_the_librarian(rehearsal.client)
    assert undisturbed["outcome"] == ("answer" if kind == "found" else "nothing")
    assert bool(undisturbed["citations"]) is (kind == "found")
    types = sorted(event.event_type for event in history)
    assert len(types) == EVENTS[kind]
    for number in range(1, len(types) + 1):
        async with researching(tmp_path, docs, number) as rehearsal:
            strike_at(rehearsal, number, reaches_log)
            result, history = await research(rehearsal, QUESTIONS[kind], docs)
            async with asyncio.timeout(PATIENCE_S):
                await rehearsal.wait_for_crash()
            assert rehearsal.crashes == 1
            assert result == undisturbed
            assert sorted(event.event_type for event in history) == types
            assert await asked_of_the_librarian(rehearsal.client) == searches, "no search is made twice"


@pytest.mark.parametrize(
    ("number", "when"),
    one_of(3, [(2, "after"), (1, "before"), (9, "before"), (19, "before"), (14, "after"), (22, "after")]),
)
def test_after_sigkill_the_same_command_goes_on_to_the_same_answer(
    tmp_path: Path, docs: Path, alone: Folder, number: int, when: str
) -> None:
    command = ("run", "agents.researcher", QUESTIONS["found"], "--docs", str(docs), "--key", "dam", "--json")
    undisturbed = alone.json(*command)  # done once: the same key meets the same run
    folder = Folder(ROOT, NOESIUM_HOME=str(tmp_path / "killed"))
    plain = folder.command
    folder.command = (sys.executable, "-m", "tests.support.striking", str(number), when)
    died = folder.run(*command)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert died.stdout == ""
    folder.command = plain
    after = folder.json(*command)
    assert undisturbed["citations"]
    assert {**after, "log": ""} == {**undisturbed, "log": ""}
    assert len(folder.json("runs", "--json")) == len(alone.json("runs", "--json"))
