"""`noesium export` and `noesium verify --offline`, between real processes that each have their own key."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from pathlib import Path

import pytest

from noesium_stream.client import Client
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.log.open import open_log
from tests.support.backends import Backend
from tests.support.command import Folder
from tests.support.proofs import rechained
from tests.support.reading import PATIENCE_S, eventually

AGENT = """
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from noesium_stream import agent_from_graph
from noesium_stream.kernel import current_step


class State(TypedDict, total=False):
    question: str
    answer: str


async def refund(state: State) -> State:
    step = current_step()
    await step.interrupt("Refund it?")
    return {"answer": await step.effect("pay", str.upper, state["question"])}


graph = StateGraph(State)
graph.add_node("refund", refund)
graph.add_edge(START, "refund")
graph.add_edge("refund", END)
AGENT = agent_from_graph(graph, "clerk")
"""

POLICY = '[[allow]]\nwho = ["*"]\nmay = ["*"]\n'


class Signed:
    """A folder for the commands of each: with its own key, on a log that requires signatures."""

    def __init__(self, path: Path, url: str) -> None:
        (path / "agents").mkdir(parents=True)
        (path / "agents" / "__init__.py").write_text('"""Toys."""\n')
        (path / "agents" / "clerk.py").write_text(AGENT)
        (path / "policy.toml").write_text(POLICY)
        self.path = path
        self.url = url
        makes_keys, keys = Folder(path), {}
        for key, name in (("alice-1", "alice"), ("bob-1", "bob"), ("clerk-1", "agent:clerk"), ("ops-1", "*")):
            keys.update(json.loads(makes_keys.ok("keys", "new", key, "--for", name)))
        (path / "keys.json").write_text(json.dumps(keys))

    def of(self, key: str) -> Folder:
        return Folder(
            self.path,
            NOESIUM_LOG=self.url,
            NOESIUM_SIGNATURES="required",
            NOESIUM_PUBLIC_KEYS="keys.json",
            NOESIUM_SIGNING_KEY=f"{key}.key",
            NOESIUM_POLICY="policy.toml",
        )


@pytest.fixture
def signed(backend: Backend, tmp_path: Path) -> Signed:
    (tmp_path / "new").mkdir()
    return Signed(tmp_path / "folder", backend.url)


async def _ask(signed: Signed) -> str:
    """Start a run with alice's key; return its id when it has asked."""
    log = await open_log(
        signed.url,
        signer=Signer.from_file(signed.path / "alice-1.key"),
        verifier=Verifier.from_file(signed.path / "keys.json", required=True),
    )
    async with Client(log, agent_id="alice") as client:
        run = await client.start("clerk", {"question": "money back"})
        await eventually(lambda: run.approvals())
    await log.close()
    return run.id


@pytest.mark.needs("several_processes")
def test_a_run_is_proven_on_a_machine_without_its_log(signed: Signed, tmp_path: Path) -> None:
    bob, ops = signed.of("bob-1"), signed.of("ops-1")
    with signed.of("clerk-1").running("worker", "agents.clerk") as worker:
        worker.wait_for_error_line("at work")
        run_id = asyncio.run(_ask(signed))
        ops.ok("export", run_id, str(tmp_path / "open.jsonl"))
        bob.ok("approve", run_id)
        bob.ok("wait", run_id, "--timeout", str(PATIENCE_S))
        ops.ok("export", run_id, str(tmp_path / "run.jsonl"))
    elsewhere = Folder(tmp_path / "elsewhere")
    elsewhere.path.mkdir()
    for name in ("open.jsonl", "run.jsonl"):
        shutil.copy(tmp_path / name, elsewhere.path)
    shutil.copy(signed.path / "keys.json", elsewhere.path)
    verify = ("verify", run_id, "--public-keys", "keys.json", "--offline")
    shown = elsewhere.ok(*verify, "run.jsonl")
    assert shown.endswith("proven\n")
    asked, approved, effect, ended = shown.splitlines()[2:6]
    assert asked.split()[:3] == ["asked", "alice", "alice-1"]
    assert approved.split()[:3] == ["approved", "bob", "bob-1"]
    assert approved.endswith("Refund it?")
    assert effect.endswith("pay (external): done")
    assert ended.endswith("completed")
    assert "signed by: ops-1" in shown
    found = elsewhere.json(*verify, "run.jsonl", "--json")
    assert found["proven"]
    assert found["senders"] == {"alice-1": 1, "bob-1": 1}
    assert elsewhere.ok(*verify, "open.jsonl").endswith("proven\n")
    assert not (elsewhere.path / ".noesium").exists()

    lines = (elsewhere.path / "run.jsonl").read_bytes().splitlines(keepends=True)
    (elsewhere.path / "run.jsonl").write_bytes(b"".join([*lines[:4], *lines[5:]]))
    done = elsewhere.run(*verify, "run.jsonl")
    assert done.returncode == 1
    assert "record 3 is missing before it" in done.stdout
    assert done.stdout.endswith("not proven\n")
    assert done.stderr == ""


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "x").write_text("hello\x1b[31m")
    for arguments, said in (
        (("--offline", "nothing"), "nothing cannot be read: No such file or directory."),
        (("--offline", "x"), "x is no exported run, or its first line was changed."),
        (("--offline", "x", "--open"), "--offline takes one run id at most"),
        (("", "--offline", "x"), "A run id is empty."),
        (("--public-keys", "x", "run"), "--public-keys goes with --offline"),
        (("--offline", "x", "--public-keys", "nothing"), "nothing is no file of public keys"),
    ):
        done = folder.run("verify", *arguments)
        assert done.returncode == 2, done
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""


def test_what_a_file_says_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    head = {
        "format": "noesium-proof/1",
        "namespace": "\x1b[31m",
        "agent_type": "\u202e\udcff\x07",
        "run_id": "a\nproven",
        "at": 0,
        "sha256": "",
    }
    record = {
        "topic": "\x1b",
        "partition": 0,
        "offset": 0,
        "at": 0,
        "key": "a\nproven",
        "headers": [["ce_type", base64.b64encode(b"\x1b[2J\xff").decode()], ["noesium_seq", ""]],
        "value": "",
        "sha256": "",
    }
    (tmp_path / "x").write_bytes(b"".join(rechained([json.dumps(line).encode() for line in (head, record)])))
    for arguments in (("--offline", "x"), ("--offline", "x", "--json")):
        done = folder.run("verify", *arguments)
        assert done.returncode == 1, done
        assert not set("\x1b\x07\u202e\udcff") & set(done.stdout), done.stdout
        assert "\nproven" not in done.stdout
        assert done.stderr == ""
