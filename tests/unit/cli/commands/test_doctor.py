"""`noesium doctor`: what it finds on a log in a file, and its exit code."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from langgraph.graph import START, StateGraph

from noesium_stream.agent import agent_from_graph
from noesium_stream.cli.commands.doctor import doctor_command
from noesium_stream.cli.exits import FAILED
from noesium_stream.client import Client
from noesium_stream.kernel import current_step
from noesium_stream.log import open_log
from noesium_stream.worker import Worker
from tests.support.effects import reached
from tests.support.handlers import Sold, Watcher, append_by_key
from tests.support.reading import PATIENCE_S, eventually
from tests.support.sample_agents import Echo


class Said(NamedTuple):
    """The exit code, and what was found by level."""

    code: int
    problems: list[str]
    warnings: list[str]
    ok: list[str]


def examined(*args: str) -> Said:
    result = CliRunner().invoke(doctor_command, [*args, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found = json.loads(result.stdout)
    levels = [
        [one["what"] for one in found if one["level"] == level] for level in ("problem", "warning", "ok")
    ]
    return Said(result.exit_code, *levels)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOESIUM_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, 1 << 40))
    return tmp_path


def test_a_log_that_is_missing_is_a_problem() -> None:
    said = examined("--log", "sqlite:///nowhere.db")
    assert said.code == FAILED
    assert ["There is no log at" in one for one in said.problems] == [True]


async def test_requests_that_nobody_reads_are_a_problem_and_an_open_file_is_a_warning(home: Path) -> None:
    log = await open_log(f"sqlite:///{home / 'log.db'}?partitions=1")
    async with Client(log) as client:
        await client.start("triage", {})
    await log.close()
    (home / "log.db").chmod(0o644)
    said = await in_thread()
    assert said.code == FAILED
    assert said.problems == ["noesium.agent.triage.inbox/0 has no owner: up to 1 request unread"]
    assert said.warnings == [f"{home / 'log.db'} can be read or written by others"]
    assert "this process signs nothing, and nothing has to be signed" in said.ok


async def test_what_comes_for_a_run_that_has_ended_is_no_unread_request(home: Path) -> None:
    log = await open_log(f"sqlite:///{home / 'log.db'}?partitions=1")
    async with Client(log) as client:
        async with Worker(log, [Echo], home=home):
            run = await client.start("echo", {"text": "x"}, idempotency_key="k")
            await run.result(timeout=PATIENCE_S)
        await client.start("echo", {"text": "x"}, idempotency_key="k")
        await run.signal("late")
        assert (await in_thread()).problems == []
        await client.start("echo", {"text": "y"})
    await log.close()
    said = await in_thread()
    assert said.problems == ["noesium.agent.echo.inbox/0 has no owner: up to 1 request unread"]


async def wait_for_go(state: dict[str, Any]) -> None:
    await current_step().signal("go")


async def test_an_open_run_without_an_owner_is_told_alone(home: Path) -> None:
    agent = agent_from_graph(StateGraph(dict).add_node(wait_for_go).add_edge(START, "wait_for_go"), "waiter")
    log = await open_log(f"sqlite:///{home / 'log.db'}?partitions=1")
    async with Client(log) as client, Worker(log, [agent], home=home):
        await reached(await client.start("waiter", {}), "kernel.signal.awaited")
    await log.close()
    said = await in_thread()
    assert said.problems == ["noesium.agent.waiter.inbox/0 has no owner: 1 open run"]


async def test_partitions_of_which_the_same_is_said_are_one_line(home: Path) -> None:
    log = await open_log(f"sqlite:///{home / 'log.db'}?partitions=4")
    log.catalogue.register(Sold)
    await append_by_key(log, [(key, Sold(amount=1)) for key in "abc"])
    async with Worker(log, [Watcher], home=home) as worker, Client(log) as client:

        async def reported() -> bool:
            return any(one.instance_id == worker.instance_id for one in await client.workers())

        await eventually(reported)
    await log.close()
    said = await in_thread()
    assert said.warnings == ["noesium.events.sales/0-3: watcher handles it, and has no worker"]


async def in_thread() -> Said:
    return await asyncio.to_thread(examined)


@pytest.mark.parametrize(("free", "level"), [(1 << 20, "problems"), (1 << 29, "warnings"), (1 << 40, "ok")])
def test_a_full_disk_is_told(home: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, free))
    said = examined("--log", "memory://")
    assert any("free at" in one for one in getattr(said, level))
    assert said.code == (FAILED if level == "problems" else 0)


def test_a_process_that_should_sign_and_cannot_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOESIUM_SIGNATURES", "required")
    (home / "root.json").write_text("{}")
    monkeypatch.setenv("NOESIUM_PUBLIC_KEYS", str(home / "root.json"))
    said = examined("--log", "memory://")
    assert said.code == FAILED
    assert any("This process does not sign what it writes" in one for one in said.problems), said


def test_a_policy_that_cannot_be_read_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "noesium.policy.toml").write_text("[[allow]]\nwho = 5\n")
    monkeypatch.setenv("NOESIUM_POLICY", str(home / "noesium.policy.toml"))
    said = examined("--log", "memory://")
    assert said.code == FAILED
    assert any("noesium.policy.toml" in one for one in said.problems), said
