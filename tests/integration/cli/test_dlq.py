"""`noesium dlq` for records that an agent's worker refused: real processes, SQLite and Kafka."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, TraceContext
from noesium_stream.event.standard import RunRequested
from noesium_stream.log import open_log
from noesium_stream.log.port import Outgoing
from tests.support.command import Folder, Running
from tests.support.kafka import KafkaServer


@pytest.fixture(params=["sqlite", "kafka"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'events.db'}"
    kafka: KafkaServer = request.getfixturevalue("kafka")
    return str(kafka.url(request.getfixturevalue("namespace")))


@pytest.fixture
def folder(tmp_path: Path, url: str) -> Folder:
    return Folder.with_toys(tmp_path, NOESIUM_LOG=url, NOESIUM_PARTITIONS="2")


async def misplaced(url: str, agent_types: list[str]) -> list[str]:
    """Commands under a key that is not their run's: refused. Returns the runs' ids."""
    clock, runs, records = SystemClock(), [], []
    log = await open_log(url)
    try:
        for agent_type in agent_types:
            run_id = clock.uuid7()
            asked = RunRequested(run_id=run_id, agent_type=agent_type, input={"question": "good day"})
            trace = TraceContext(clock.token(16), clock.token(8))
            event = asked.to_envelope(AgentRef("x", "x"), trace, partition_key=run_id)
            records.append(Outgoing(event, log.topology.inbox("echo"), 0, "another"))
            runs.append(run_id)
        writer = await log.writer("foreign")
        await writer.commit(records)
        await writer.close()
    finally:
        await log.close()
    return runs


def test_a_refused_command_is_listed_shown_sent_again_and_what_is_not_wanted_dropped(
    folder: Folder, url: str
) -> None:
    assert folder.run("dlq", "list").stdout == ""
    with folder.running("worker", "agents.echo") as worker:
        worker.wait_for_error_line("at work on")
        first, second = asyncio.run(misplaced(url, ["echo", "nobody"]))
        worker.wait_for(lambda _: len(folder.json("dlq", "list", "--json")) == 2)
        letters = folder.json("dlq", "list", "agent:echo", "--json")
        assert [letter["key"] for letter in letters] == [first, second]
        assert {letter["status"] for letter in letters} == {"open"}
        listed = folder.ok("dlq", "list").splitlines()
        assert listed[0].split() == ["of", "key", "position", "type", "why"]
        assert listed[1].split()[:4] == ["agent:echo", first, letters[0]["position"], "run.requested"]
        shown = folder.ok("dlq", "show", "agent:echo", letters[0]["position"])
        assert f"reason: key: is another, but the run is {first}" in shown

        sent = folder.run("dlq", "redrive", "agent:echo", letters[0]["position"])
        assert (sent.returncode, sent.stderr) == (0, "1 sent again, 0 dead letters stay\n")
        answered(folder, worker, first)
        again = folder.run("dlq", "redrive", "agent:echo", letters[0]["position"])
        assert again.returncode == 2
        assert "was redriven already" in again.stderr
        assert [letter["key"] for letter in folder.json("dlq", "list", "--json")] == [second]

        dropped = folder.run("dlq", "drop", "agent:echo", letters[1]["position"], "--reason", "a test")
        assert (dropped.returncode, dropped.stderr) == (0, "1 dropped, 0 dead letters stay\n")
    assert folder.run("dlq", "list").stderr == "There are no dead letters.\n"
    statuses = [letter["status"] for letter in folder.json("dlq", "list", "--all", "--json")]
    assert statuses == ["redriven", "dropped"]


def answered(folder: Folder, worker: Running, run_id: str) -> None:
    worker.wait_for(
        lambda _: any(
            run["run_id"] == run_id and run["status"] == "completed" for run in folder.json("runs", "--json")
        )
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["redrive", "agent:echo", "nowhere"], "neither a position nor a time"),
        (
            ["redrive", "agent:echo", "noesium.agent.echo.inbox/0@77"],
            "is no dead letter of agents of type echo",
        ),
        (["drop", "outcomes", "noesium.agent.echo.inbox/0@77"], "names no agent"),
        (["list", "agent:Not A Type"], "is not an agent type"),
        (["show", "agent:echo", "noesium.agent.echo.inbox/0@77"], "There is no dead letter at"),
    ],
)
def test_a_wrong_name_or_place_is_one_clear_error(tmp_path: Path, args: list[str], said: str) -> None:
    folder = Folder.with_toys(tmp_path)
    folder.ok("run", "agents.echo", "good day")
    done = folder.run("dlq", *args)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
