"""The commands on a real Kafka: workers elsewhere do the work, and a broker that is not there is one line."""

from __future__ import annotations

import json
import shlex
import signal
import time
from pathlib import Path

import pytest

from tests.support.command import Folder
from tests.support.kafka import KafkaServer
from tests.support.ports import dead_port, free_port
from tests.support.reading import PATIENCE_S

ECHO = "agents.echo"


@pytest.fixture
def folder(tmp_path: Path, kafka: KafkaServer, namespace: str) -> Folder:
    return Folder.with_toys(tmp_path, NOESIUM_LOG=kafka.url(namespace), NOESIUM_PARTITIONS="2")


def test_the_attached_workers_answer_and_the_tree_spans_both_processes(folder: Folder) -> None:
    with (
        folder.running("worker", ECHO, "--loud") as echo,
        folder.running("worker", "agents.helper") as helper,
    ):
        echo.wait_for_error_line("echo 1.2.0: at work on kafka://")
        helper.wait_for_error_line("helper 1.0.0: at work on kafka://")
        done = folder.run("run", ECHO, "good day")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("GOOD DAY.")
        assert "→ text.upper (helper)" in done.stderr
        assert "Traceback" not in done.stderr
        shown = folder.run("show")
        assert "▸ text.upper  helper 1.0.0" in shown.stdout
        assert shown.stderr == ""
        names = {topic["name"].partition(".")[2] for topic in folder.json("topics", "--json")}
        assert {"agent.echo.journal", "agent.helper.inbox", "registry"} <= names
        tailed = [json.loads(line) for line in folder.ok("tail", "--json", "-t", "run.").splitlines()]
        assert [event["event_type"] for event in tailed].count("run.completed") == 2
    assert not any("Traceback" in line for line in [*echo.err, *helper.err])


def test_when_nobody_takes_up_a_run_it_says_so_and_waits_on_until_somebody_does(folder: Folder) -> None:
    with folder.running("run", ECHO, "good day") as running:
        running.wait_for_error_line("Nobody has taken up the run for 15 s")
        hint = running.wait_for_error_line(f"noesium worker {ECHO} --log ")
        running.wait_for_error_line("  noesium worker agents.helper --log ")
        with folder.running(*shlex.split(hint)[1:]):
            assert running.wait() == 0
    assert running.out[0] == "good day."


def test_when_nobody_answers_a_delegated_call_it_says_who_is_missing_and_how_to_start_it(
    folder: Folder,
) -> None:
    with folder.running("worker", "agents.helper") as helper:  # it offers what nobody does afterwards
        helper.wait_for_error_line("at work")
        helper.signal(signal.SIGTERM)
        assert helper.wait() == 0
    with folder.running("worker", ECHO, "--loud"), folder.running("run", ECHO, "good day") as running:
        running.wait_for_error_line("→ text.upper (helper)")
        running.wait_for_error_line("helper has not answered text.upper for 15 s")
        hint = running.wait_for_error_line("noesium worker agents.helper --log ")
        with folder.running(*shlex.split(hint)[1:]):
            assert running.wait() == 0
    assert running.out[0] == "GOOD DAY."
    assert not any("Nobody has taken up the run" in line for line in running.err)


def test_a_killed_worker_s_run_is_taken_over_and_the_tree_says_so(folder: Folder) -> None:
    with folder.running("worker", ECHO) as first, folder.running("run", ECHO, "wait") as running:
        run_id = running.wait_for_error_line("run ").split()[1]
        running.wait_for_error_line("begins")
        first.signal(signal.SIGKILL)
        first.wait()
        with folder.running("worker", ECHO):
            folder.ok("signal", run_id, "go", "on")
            assert running.wait() == 0
            assert running.out[0] == "on."
    head = folder.ok("show", run_id).splitlines()[0]
    assert "taken over from" in head
    events = [json.loads(line) for line in folder.ok("events", run_id, "--json").splitlines()]
    completed = [event for event in events if event["event_type"] == "kernel.node.completed"]
    assert [event["payload"]["node"] for event in completed] == ["listen", "say"]
    producers = [event["producer"] for event in events]
    assert len({one["instance_id"] for one in producers if one["agent_type"] == "echo"}) == 2


def test_ctrl_c_leaves_the_run_with_its_worker(folder: Folder) -> None:
    with folder.running("worker", ECHO) as worker:
        worker.wait_for_error_line("at work")
        with folder.running("run", ECHO, "wait") as running:
            run_id = running.wait_for_error_line("run ").split()[1]
            running.wait_for_error_line("begins")
            running.signal()
            assert running.wait() == 130
            assert any(f"noesium run {ECHO} --resume {run_id}" in line for line in running.err)
        folder.ok("signal", run_id, "go", "later")
        assert folder.ok("run", ECHO, "--resume", run_id).startswith("later.")
        worker.signal()
        assert worker.wait() == 130


@pytest.mark.parametrize("args", [("run", ECHO, "x"), ("worker", ECHO), ("runs",), ("topics",), ("tail",)])
def test_no_broker_at_the_address_is_one_line_with_advice_and_exit_code_3(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    folder = Folder.with_toys(tmp_path)
    begun = time.monotonic()
    with dead_port() as port:
        done = folder.run(*args, "--log", f"kafka://localhost:{port}")
    assert time.monotonic() - begun < PATIENCE_S
    assert done.returncode == 3
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"error: no Kafka broker answers at localhost:{port}")
    assert "noesium broker up" in lines[1]
    assert len(lines) == 2


def test_the_local_broker_comes_up_keeps_its_data_and_goes_down(tmp_path: Path, kafka: KafkaServer) -> None:
    folder = Folder.with_toys(tmp_path)
    assert folder.run("broker", "status").returncode == 1
    port = str(free_port())
    url = folder.ok("broker", "up", "--port", port).strip()
    try:
        assert url == f"kafka://localhost:{port}"
        assert folder.json("broker", "status", "--json")["answering"] is True
        with folder.running("worker", ECHO, "--log", url) as worker:
            worker.wait_for_error_line("at work")
            assert folder.ok("run", ECHO, "x", "--log", url).startswith("x.")
            folder.ok("broker", "down")
            # A worker that is told to end does not wait for a broker that is gone.
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert any("agent.stopped was not written" in line for line in worker.err)
        assert folder.run("runs", "--log", url).returncode == 3
        assert folder.ok("broker", "up").strip() == url
        assert [run["label"] for run in folder.json("runs", "--json", "--log", url)] == ["x"]
        assert folder.ok("broker", "logs", "--lines", "3").count("\n") == 3
    finally:
        folder.run("broker", "down")
    assert folder.run("broker", "status").returncode == 1
