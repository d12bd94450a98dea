"""Two librarians in processes of their own, one killed while it answers: the researcher answers the same."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.researcher import AGENT as RESEARCHER
from agents.researcher.agent import ResearcherOptions
from noesium_stream.client import Client
from noesium_stream.log import open_log
from tests.support.command import Folder
from tests.support.corpora import write_files
from tests.support.pages import ROOT
from tests.support.reading import PATIENCE_S

DOCUMENTS = {
    "dam.md": "# The dam\n\nThe dam of Lusk was finished in 1931. It is 42 m high.\n\n"
    "## Repairs\n\nThe spillway was repaired in 1977 after a flood had damaged its gates.\n",
    "notes/gates.txt": "The gates are opened when the water stands at 38 m.\n\nEach weighs nine tonnes.\n",
}
AT_WORK = "at work on"
QUESTION = "When was the spillway repaired after the flood?"


async def answer(home: Path, docs: Path, log_url: str) -> dict[str, Any]:
    """What a researcher in a process of its own answers."""
    folder = Folder(ROOT, NOESIUM_HOME=str(home))
    log = await open_log(log_url)
    with folder.running("worker", "agents.researcher", "--log", log_url):
        async with Client(log) as client:
            asked = RESEARCHER.input_from_question(QUESTION, ResearcherOptions(docs=docs))
            result: dict[str, Any] = await (await client.start("researcher", asked)).result(
                timeout=PATIENCE_S
            )
            librarians = [run for run in await client.list_runs() if run.agent_type == "librarian"]
            assert [run.status for run in librarians] == ["completed"], "no search is made twice"
    await log.close()
    return result


@pytest.mark.parametrize(("number", "when"), [(1, "after"), (4, "before")])
async def test_the_other_librarian_takes_over_and_the_answer_is_the_same(
    tmp_path: Path, number: int, when: str
) -> None:
    docs = write_files(tmp_path / "docs", DOCUMENTS)
    answers = []
    for deadly in (False, True):
        home = tmp_path / ("killed" if deadly else "alone")
        home.mkdir()
        log_url = f"sqlite:///{home}/log.db?partitions=1"
        command = ("worker", "agents.librarian", "--docs", str(docs), "--log", log_url)
        first, second = Folder(ROOT, NOESIUM_HOME=str(home)), Folder(ROOT, NOESIUM_HOME=str(home))
        if deadly:
            first.command = (sys.executable, "-m", "tests.support.striking", str(number), when)
        with first.running(*command) as owner:
            await asyncio.to_thread(owner.wait_for_error_line, AT_WORK)
            with second.running(*command) as heir:
                await asyncio.to_thread(heir.wait_for_error_line, AT_WORK)
                answers.append(await answer(home, docs, log_url))
                if deadly:
                    assert await asyncio.to_thread(owner.wait) == -signal.SIGKILL
    assert answers[0]["citations"]
    assert answers[0] == answers[1]
