"""`noesium costs`: by agent, run, model and branch; for people and for programs."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Folder
from tests.support.model_server import model_server, outage, said

MODULE = textwrap.dedent(
    '''
    """Two agents that ask models; `desk` asks `helper`, too."""

    from noesium_stream import BaseGraphicAgent, JournaledLLM, ModelError, OpenAILLM, capability, current_step


    class Helper(BaseGraphicAgent):
        agent_type = "helper"

        @capability("text.help")
        async def help(self, text: str) -> str:
            """Help."""
            return await JournaledLLM(OpenAILLM("openai:gpt-4o-mini")).complete(text)


    class Desk(BaseGraphicAgent):
        agent_type = "desk"
        companions = ("desks:Helper",)

        @capability("text.reply")
        async def reply(self, text: str) -> str:
            """Reply."""
            try:
                await JournaledLLM(OpenAILLM("openai:nobody-knows")).complete("first")
            except ModelError:
                pass
            unknown = await JournaledLLM(OpenAILLM("openai:nobody-knows")).complete(text)
            return unknown + await current_step().invoke("text.help", {"text": text})
    '''
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, str]:
    path: Path = tmp_path_factory.mktemp("costs")
    (path / "desks.py").write_text(MODULE)
    with model_server([outage(), said("it is"), said("four")]) as server:
        made = Folder(path, OPENAI_BASE_URL=server.openai, OPENAI_API_KEY="k")
        asked = ("run", "desks:Desk", "--input", '{"text": "two and two"}', "--json")
        run_id = made.json(*asked)["run_id"]
    return made, run_id


def costs(folder: Folder, *arguments: str) -> dict[str, dict[str, Any]]:
    found = folder.json("costs", *arguments, "--json")
    return {row["name"]: row for row in found["costs"]} | {"total": found["total"]}


def test_by_agent(folder: tuple[Folder, str]) -> None:
    found = costs(folder[0])
    assert set(found) == {"desk", "helper", "total"}
    assert (found["desk"]["calls"], found["desk"]["failed"], found["desk"]["unpriced"]) == (2, 1, 1)
    assert found["helper"]["nano_usd"] == found["total"]["nano_usd"] == 3 * 150 + 1 * 600
    assert found["total"]["calls"] == 3


def test_by_model(folder: tuple[Folder, str]) -> None:
    found = costs(folder[0], "--by", "model")
    assert {name: row["calls"] for name, row in found.items()} == {
        "openai:gpt-4o-mini": 1,
        "openai:nobody-knows": 2,
        "total": 3,
    }


def test_by_run_and_of_one_run_with_those_below_it(folder: tuple[Folder, str]) -> None:
    made, run_id = folder
    found = costs(made, "--by", "run")
    assert run_id in found
    assert len(found) == 3
    assert costs(made, run_id[:13], "--by", "run") == found
    (below,) = set(found) - {run_id, "total"}
    assert costs(made, below)["total"]["calls"] == 1


def test_by_branch(folder: tuple[Folder, str]) -> None:
    found = costs(folder[0], "--by", "branch")
    assert {name: row["calls"] for name, row in found.items()} == {"desk": 2, "desk › helper": 1, "total": 3}


def test_for_people(folder: tuple[Folder, str]) -> None:
    lines = folder[0].ok("costs").splitlines()
    assert lines[0].split() == ["agent", "calls", "failed", "denied", "input", "output", "cost"]
    assert "1 unpriced" in next(line for line in lines if line.startswith("desk"))
    assert lines[-1].split()[0] == "total"
