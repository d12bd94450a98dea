"""`noesium approvals`, `approve` and `show` on a tree whose grandchild asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from noesium_stream.cli import app
from noesium_stream.client import Client
from noesium_stream.worker import Worker
from tests.support.reading import eventually
from tests.support.tree_agents import AGENTS, calling
from tests.support.trees import children

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def tree(url: str, tmp_path: Path) -> list[str]:
    """The ids of a root, its child, and its grandchild, which has asked; no worker is there any more."""

    async def begin() -> list[str]:
        async with Worker(url, list(AGENTS), home=tmp_path), Client(url) as client:
            asked = {"question": "pay \x1b[31mall?"}
            run = await client.start("root", calling("middle", calling("leaf", asked)))
            await eventually(run.questions)
            [child] = await children(client.log, run)
            [grandchild] = await children(client.log, child)
            return [run.id, child.id, grandchild.id]

    return asyncio.run(begin())


@pytest.fixture
def command(url: str, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> tuple[int, str, str]:
        code = app.run([*words, "--log", url])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_question_is_listed_with_its_path_and_answered_by_the_root_s_id(
    command: Command, tree: list[str]
) -> None:
    root, middle, leaf = tree
    path = f"  root {root[:13]} > middle {middle[:13]} > leaf {leaf[:13]}"
    for words in (["approvals"], ["approvals", root[:20]], ["approvals", middle]):
        code, listed, said = command(*words)
        assert code == 0, said
        lines = listed.splitlines()
        assert lines[1].startswith(leaf)
        assert "pay \\x1b[31mall?" in lines[1]
        assert len(lines) == 3
        assert path.endswith(lines[2].strip())
    code, listed, _ = command("approvals", "--json")
    [question] = json.loads(listed)
    assert [one["run_id"] for one in question["path"]] == tree
    code, shown, _ = command("show", root)
    assert f"leaf {leaf[:13]} waits for anyone to answer" in shown.splitlines()[3]
    code, _, said = command("approve", root, "--as", "ann")
    assert (code, said.strip()) == (0, f'approved "pay \\x1b[31mall?" of {leaf}')
    code, _, said = command("approve", leaf, "--as", "bob")
    assert code != 0
    assert "was approved by ann" in said


def test_several_roots_are_answered_and_one_that_asks_nothing_is_said(
    command: Command, tree: list[str]
) -> None:
    code, listed, said = command("reject", tree[0], tree[1], "--yes", "--as", "ann")
    assert code == 1
    assert listed.count("pay") == 2
    assert "was rejected by ann" in said
    code, _, said = command("approvals", "--agent", "leaf", tree[0])
    assert (code, "give no RUN" in said) == (2, True)
