"""The commands as real processes on the embedded log: what they print, where, and how they end."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.client import Client
from tests.support.command import Folder
from tests.support.effects import reached
from tests.support.pages import ROOT

ECHO = "agents.echo"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder.with_toys(tmp_path)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, str]:
    """A folder in which one run was made, with delegation, to be looked at; and the run's id."""
    folder = Folder.with_toys(tmp_path_factory.mktemp("used"))
    run_id: str = folder.json("run", ECHO, "good day", "--loud", "--json")["run_id"]
    return folder, run_id


# -- run -------------------------------------------------------------------------------------------------


def test_run_prints_the_answer_on_standard_output_and_its_progress_on_standard_error(folder: Folder) -> None:
    done = folder.run("run", ECHO, "good day", "--loud", "--times", "2", "--ending", "!")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "GOOD DAY GOOD DAY!\n\nSources\n  [1] the question\n"
    said = done.stderr.splitlines()
    assert said[0].startswith("run ")
    assert said[1] == "echo 1.2.0 begins"
    assert any(line.startswith("  → text.upper (helper)") for line in said)
    assert any(line.startswith("  ← text.upper") for line in said)
    assert any(line.split()[0] == "say" and line.split()[2] == "ms" for line in said)


def test_run_with_json_prints_one_object_on_standard_output_alone(folder: Folder) -> None:
    result = folder.json("run", ECHO, "good day", "--json")
    assert sorted(result) == ["answer", "citations", "events", "log", "question", "run_id", "sources"]
    assert result["answer"] == "good day."
    assert result["citations"] == ["good day"]
    assert result["sources"] == ["[1] the question"]
    assert result["log"] == f"sqlite:///{folder.path}/.noesium/log.db"
    events = folder.ok("events", result["run_id"], "--json").splitlines()
    assert len(events) == result["events"]


@pytest.mark.parametrize("command", ["run", "worker"])
def test_a_new_log_at_an_address_that_was_given_is_announced_once(folder: Folder, command: str) -> None:
    url = "sqlite:///typo.db"
    with folder.running(command, ECHO, *(["x"] if command == "run" else []), "--log", url) as first:
        first.wait_for_error_line("begins" if command == "run" else "at work")
        assert first.err[0] == f"new log at {url}"
    folder.env["NOESIUM_LOG"] = url
    assert "new log at" not in folder.run("run", ECHO, "x").stderr
    folder.env["NOESIUM_LOG"] = "sqlite:///other.db"
    assert "new log at sqlite:///other.db\n" in folder.run("run", ECHO, "x").stderr
    assert "new log" not in folder.run("run", ECHO, "x", "--log", "memory://").stderr


def test_the_default_log_lies_in_the_home_of_the_current_folder(folder: Folder) -> None:
    folder.ok("run", ECHO, "good day")
    assert (folder.path / ".noesium" / "log.db").is_file()


def test_a_log_in_memory_leaves_nothing_behind(folder: Folder) -> None:
    assert folder.ok("run", ECHO, "x", "--log", "memory://").startswith("x.")
    assert not (folder.path / ".noesium" / "log.db").exists()


def test_options_may_stand_anywhere_and_lists_may_be_given_by_repetition(folder: Folder) -> None:
    answer = folder.ok(
        "run", "--times", "2", ECHO, "--names", "Ann", "x", "--names=Bob", "--log", "memory://"
    )
    assert answer.splitlines()[0] == "x x Ann Bob."


def test_an_agent_may_be_given_as_module_and_class(folder: Folder) -> None:
    assert folder.ok("run", f"{ECHO}:Echo", "x", "--log", "memory://").startswith("x.")


def test_help_of_run_with_an_agent_shows_the_options_of_that_agent(folder: Folder) -> None:
    plain = folder.ok("run", "--help")
    assert "--loud" not in plain
    own = folder.ok("run", ECHO, "--help")
    assert "--loud / --no-loud" in own
    assert "How often to say it. [echo; default: 1]" in " ".join(own.split())
    assert "[.|!]" in own


def test_the_same_key_meets_the_same_run_and_another_input_is_bad_input(folder: Folder) -> None:
    first = folder.json("run", ECHO, "one", "--key", "mail-1", "--json")
    again = folder.json("run", ECHO, "one", "--key", "mail-1", "--json")
    assert again == first
    other = folder.run("run", ECHO, "two", "--key", "mail-1")
    assert (other.returncode, other.stdout) == (2, "")
    assert f"Run {first['run_id']} of echo has this key already" in other.stderr
    assert len(folder.json("runs", "--json")) == 1


def test_a_run_that_fails_is_one_line_of_error_and_exit_code_1(folder: Folder) -> None:
    done = folder.run("run", ECHO, "fail")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "told to fail" in done.stderr
    assert "Traceback" not in done.stderr
    (run,) = folder.json("runs", "--json")
    assert run["status"] == "failed"
    assert "told to fail" in run["error"]


# -- Ctrl-C ----------------------------------------------------------------------------------------------


def test_ctrl_c_while_a_run_is_open_exits_130_and_says_how_to_go_on_and_that_works(folder: Folder) -> None:
    with folder.running("run", ECHO, "wait") as running:
        running.wait_for_error_line("echo 1.2.0 begins")
        running.signal()
        assert running.wait() == 130
        assert running.out == []
        hint = next(line for line in running.err if "noesium run" in line)
        assert not any("Traceback" in line for line in running.err)
    command = hint.partition(": noesium ")[2].split()
    assert command[:3] == ["run", ECHO, "--resume"]
    folder.ok("signal", command[3], "go", '"on"')
    assert folder.ok(*command).startswith("on.")
    (run,) = folder.json("runs", "--json")
    assert (run["run_id"], run["status"]) == (command[3], "completed")


@pytest.mark.parametrize("after_ms", [0, 60, 200, 450, 800])
def test_ctrl_c_at_any_moment_exits_130_and_leaves_a_log_that_works(folder: Folder, after_ms: int) -> None:
    # From the first instant that Python itself can be asked; before that the signal is not the program's.
    code = (
        "import signal, threading, time, os, sys\n"
        "from noesium_stream.cli import main\n"
        "begun = threading.Event()\n"
        "def look(frame, event, arg):\n    if frame.f_code is main.__code__:\n        begun.set()\n"
        "        sys.setprofile(None)\n"
        f"def strike():\n    begun.wait()\n    time.sleep({after_ms / 1000})\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=strike, daemon=True).start()\n"
        "sys.setprofile(look)\n"
        f"main(['run', '{ECHO}', 'wait'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder.path,
        env=folder.env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 130, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert folder.ok("run", ECHO, "after it").startswith("after it.")


@pytest.mark.parametrize("kept", ["", "    raise ValueError('an error of its own') from None\n"])
@pytest.mark.parametrize(
    ("command", "number", "code", "said"),
    [
        (("run", "told", "x"), signal.SIGINT, 130, ["", "interrupted"]),
        (("worker", "told"), signal.SIGTERM, 0, ["stopped"]),
        (("project", "told:P"), signal.SIGTERM, 0, ["stopped"]),
        (("project", "told:P", "--once"), signal.SIGTERM, 143, ["stopped"]),
    ],
)
def test_a_signal_counts_also_where_an_import_makes_an_error_of_it_or_keeps_it_to_itself(
    folder: Folder, command: tuple[str, ...], number: signal.Signals, code: int, said: list[str], kept: str
) -> None:
    # pydantic does so where the signal comes while it makes a model: its SchemaError tells only that.
    (folder.path / "told.py").write_text(
        f"import os, time\nfrom agents.echo import Echo\n__all__ = ['Echo']\n"
        f"try:\n    os.kill(os.getpid(), {int(number)})\n    time.sleep(60)\n"
        f"except BaseException:\n    pass\n{kept}"
    )
    folder.ok("run", ECHO, "x")  # there is a log
    done = folder.run(*command)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (code, "", said)


def test_ctrl_c_ends_a_tail_with_130(folder: Folder) -> None:
    folder.ok("run", ECHO, "x")
    with folder.running("tail", "--follow", "--type", "run.") as tail:
        tail.wait_for(lambda process: any("run.completed" in line for line in process.out))
        tail.signal()
        assert tail.wait() == 130


# -- worker ----------------------------------------------------------------------------------------------


def test_a_worker_takes_up_what_waits_and_ends_in_order_on_sigterm(folder: Folder) -> None:
    with folder.running("run", ECHO, "wait") as running:
        running.wait_for_error_line("begins")
        run_id = running.err[0].split()[1]
        running.signal()
        assert running.wait() == 130
    folder.ok("signal", run_id, "go", "now")
    with folder.running("worker", ECHO, "agents.helper", "--loud") as worker:
        worker.wait_for_error_line("echo 1.2.0, helper 1.0.0: at work on sqlite:///")
        with folder.running("events", run_id, "--follow", "--json") as events:
            assert events.wait() == 0
            assert json.loads(events.out[-1])["payload"]["result"]["answer"] == "NOW."
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        told = "told to stop: nothing new begins, open runs go on in the next worker"
        assert worker.err[-2:] == [told, "stopped"]
    assert "memory:" not in folder.ok("worker", "--help")


def test_an_agent_that_is_given_twice_is_refused(folder: Folder) -> None:
    done = folder.run("worker", "agents.echo", "agents.echo")
    assert done.returncode == 2
    assert "agents.echo is given twice" in done.stderr


def test_a_worker_that_is_told_to_stop_while_it_starts_ends_in_order(folder: Folder) -> None:
    (folder.path / "agents" / "slow.py").write_text(
        "from agents.echo import Echo\n"
        "class Slow(Echo):\n"
        "    agent_type = 'slow'\n"
        "    async def start(self):\n"
        "        self.context.progress('starting')\n"
        "        await self.context.clock.sleep(3600)\n"
        "AGENT = Slow\n"
    )
    with folder.running("worker", "agents.slow") as worker:
        worker.wait_for_error_line("starting")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.err[-1] == "stopped"
        assert not any("Traceback" in line for line in worker.err)


def test_a_worker_that_is_told_to_stop_while_it_is_imported_ends_in_order(folder: Folder) -> None:
    (folder.path / "agents" / "heavy.py").write_text(
        "import sys, threading\n"
        "print('importing', file=sys.stderr, flush=True)\n"
        "threading.Event().wait(3600)\n"
    )
    with folder.running("worker", "agents.heavy") as worker:
        worker.wait_for_error_line("importing")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert worker.err == ["importing", "stopped"]


def test_a_worker_ends_with_130_on_ctrl_c(folder: Folder) -> None:
    with folder.running("worker", ECHO) as worker:
        worker.wait_for_error_line("at work")
        worker.signal()
        assert worker.wait() == 130
        assert not any("Traceback" in line for line in worker.err)


def test_a_worker_on_a_log_in_memory_is_refused(folder: Folder) -> None:
    done = folder.run("worker", ECHO, "--log", "memory://")
    assert done.returncode == 2
    assert "nobody could ask this worker" in done.stderr


def test_two_agents_of_one_type_in_a_worker_are_refused(folder: Folder) -> None:
    done = folder.run("worker", ECHO, f"{ECHO}:Echo")
    assert done.returncode == 2
    assert "a second agent of type 'echo'" in done.stderr


# -- looking ---------------------------------------------------------------------------------------------


def test_runs_lists_what_was_asked_newest_first_without_what_was_delegated(folder: Folder) -> None:
    for question in ("one", "two", "fail"):
        folder.run("run", ECHO, question, "--loud")
    lines = folder.ok("runs").splitlines()
    assert [line.split()[-1] for line in (lines[1], *lines[3:])] == ["fail", "two", "one"]
    assert lines[2].startswith("  ")
    assert "told to fail" in lines[2]
    assert [run["label"] for run in folder.json("runs", "--json")] == ["fail", "two", "one"]
    assert [run["label"] for run in folder.json("runs", "--json", "--status", "failed")] == ["fail"]
    assert len(folder.json("runs", "--json", "--all")) == 5
    assert len(folder.json("runs", "--json", "--limit", "1")) == 1
    assert {run["agent_type"] for run in folder.json("runs", "--json", "--agent", "helper", "--all")} == {
        "helper"
    }


def test_show_draws_the_tree_across_both_agents(used: tuple[Folder, str]) -> None:
    folder, run_id = used
    lines = folder.ok("show", run_id[:13]).splitlines()
    assert lines[0].startswith(f"echo 1.2.0  {run_id}  completed  ")
    assert lines[0].endswith('"good day"')
    assert [line.strip(" │├└─▸").split()[0] for line in lines[1:]] == ["listen", "say", "text.upper", "upper"]
    assert "helper 1.0.0" in lines[3]
    tree = folder.json("show", run_id, "--json")
    assert tree["steps"][1]["calls"][0]["run"]["agent_type"] == "helper"


def test_show_without_a_run_shows_the_newest_that_was_asked_for(folder: Folder) -> None:
    for question in ("one", "two"):
        run_id = folder.json("run", ECHO, question, "--loud", "--json")["run_id"]
    assert folder.ok("show").splitlines()[0].startswith(f"echo 1.2.0  {run_id}")
    assert run_id in folder.ok("events", "--json").splitlines()[0]


def test_show_on_a_log_without_runs_says_so(folder: Folder) -> None:
    with folder.running("worker", ECHO) as worker:
        worker.wait_for_error_line("at work")
        done = folder.run("show")
    assert done.returncode == 2
    assert "There are no runs on sqlite:///" in done.stderr


async def test_show_of_a_run_that_nobody_works_on_says_whom_it_waits_for(folder: Folder) -> None:
    url = f"sqlite:///{folder.path}/log.db"
    async with Client(url) as client:
        run = await client.start("echo", {"question": "wait"})
        with folder.running("worker", ECHO, "--log", url) as worker:
            worker.wait_for_error_line("at work")
            await reached(run, "kernel.signal.awaited")
            shown = folder.ok("show", run.id, "--log", url)
            assert 'waits for the signal "go"' in shown
            assert "nobody has partition" not in shown
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
    head, *lines = folder.ok("show", run.id, "--log", url).splitlines()
    assert head.startswith(f"echo 1.2.0  {run.id}  waiting  ")
    assert lines[0] == '   waits for the signal "go"'
    assert lines[1].startswith("   waits for a worker of echo: nobody has partition ")
    listed = folder.ok("runs", "--log", url)
    assert lines[1].strip().removeprefix("waits for ") in listed


async def test_show_of_a_run_that_nobody_has_taken_up_says_who_was_asked_what(folder: Folder) -> None:
    url = f"sqlite:///{folder.path}/log.db"
    async with Client(url) as client:
        run = await client.start("echo", {"question": "good day"})
        other = await client.start("echo", {"text": "no question"})
    shown = folder.ok("show", run.id, "--log", url)
    assert shown == f'echo  {run.id}  requested  "good day"\n'
    assert folder.ok("show", other.id, "--log", url) == f'echo  {other.id}  requested  "no question"\n'
    tree = folder.json("show", run.id, "--json", "--log", url)
    assert (tree["agent_type"], tree["status"], tree["input"]) == (
        "echo",
        "requested",
        {"question": "good day"},
    )


def test_tail_says_that_there_are_no_such_events(used: tuple[Folder, str]) -> None:
    folder, _ = used
    done = folder.run("tail", "--type", "nosuch")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("There are no such events on sqlite:///")
    assert folder.run("tail", "--lines", "0").stderr == ""


def test_events_are_the_journal_in_its_order(used: tuple[Folder, str]) -> None:
    folder, run_id = used
    types = [json.loads(line)["event_type"] for line in folder.ok("events", run_id, "--json").splitlines()]
    assert types[0] == "run.requested"
    assert types[-1] == "run.completed"
    assert types.count("kernel.node.completed") == 2
    plain = folder.ok("events", run_id).splitlines()
    assert [line.split()[1] for line in plain] == types


def test_tail_shows_each_event_once_and_its_filter_takes_prefixes(used: tuple[Folder, str]) -> None:
    folder, _ = used
    events = [json.loads(line) for line in folder.ok("tail", "--json", "--lines", "1000").splitlines()]
    ids = [event["event_id"] for event in events]
    assert len(ids) == len(set(ids))
    assert {event["producer"]["agent_type"] for event in events} == {"client", "echo", "helper"}
    assert [event["event_type"] for event in events if event["event_type"] == "capability.invoked"]
    kernel = [
        json.loads(line) for line in folder.ok("tail", "--json", "-t", "kernel.", "-n", "3").splitlines()
    ]
    assert [event["event_type"] for event in kernel] == [
        event["event_type"] for event in events if event["event_type"].startswith("kernel.")
    ][-3:]


def test_tail_follows_what_is_new_also_in_topics_that_were_not_there(folder: Folder) -> None:
    folder.ok("run", "agents.helper", "x", "--key", "a")
    with folder.running("tail", "--follow", "--json", "--lines", "0", "--type", "run.completed") as tail:
        answered = folder.json("run", ECHO, "good day", "--json")
        tail.wait_for(lambda process: any(answered["run_id"] in line for line in process.out))


def test_topics_name_partitions_records_bytes_and_retention(used: tuple[Folder, str]) -> None:
    folder, _ = used
    by_name = {topic["name"]: topic for topic in folder.json("topics", "--json")}
    journal = by_name["noesium.agent.echo.journal"]
    assert journal["partitions"] == 8
    assert journal["records"] > 0
    assert journal["bytes"] > 0
    assert journal["retention_ms"] is None
    assert by_name["noesium.agent.echo.inbox"]["retention_ms"] == 14 * 86_400_000
    lines = folder.ok("topics").splitlines()
    assert lines[0].split() == ["topic", "partitions", "records", "size", "kept"]
    assert any(line.startswith("noesium.agent.echo.journal") and line.endswith("for good") for line in lines)


def test_namespace_and_partitions_come_from_the_settings(folder: Folder) -> None:
    folder.env |= {"NOESIUM_NAMESPACE": "other", "NOESIUM_PARTITIONS": "2"}
    folder.ok("run", ECHO, "good day")
    names = {topic["name"]: topic["partitions"] for topic in folder.json("topics", "--json")}
    assert names["other.agent.echo.journal"] == 2


def test_a_run_can_be_cancelled_from_another_process(folder: Folder) -> None:
    with folder.running("run", ECHO, "wait") as running:
        run_id = running.wait_for_error_line("run ").split()[1]
        running.wait_for_error_line("begins")
        folder.ok("cancel", run_id, "--reason", "not needed")
        assert running.wait() == 1
        assert any("was cancelled: not needed" in line for line in running.err)
    for late in (("cancel", run_id), ("signal", run_id, "go")):
        done = folder.run(*late)
        assert done.returncode == 2
        assert done.stderr.splitlines()[0].endswith("has ended already: cancelled.")
        assert f"noesium show {run_id}" in done.stderr


def test_a_run_can_be_signalled_from_another_process(folder: Folder) -> None:
    with folder.running("run", ECHO, "wait") as running:
        run_id = running.wait_for_error_line("run ").split()[1]
        folder.ok("signal", run_id, "go", "plain words")
        assert running.wait() == 0
        assert running.out[0] == "plain words."


def test_config_says_where_each_value_came_from_and_hides_secrets(folder: Folder) -> None:
    (folder.path / "noesium.toml").write_text("partitions = 3\n")
    folder.env["NOESIUM_LOG"] = "kafka://user:hunter2@broker:9092"
    settings = {setting["name"]: setting for setting in folder.json("config", "--json")}
    assert settings["partitions"]["source"] == "noesium.toml"
    assert settings["partitions"]["value"] == 3
    assert settings["log"]["source"] == "NOESIUM_LOG"
    assert settings["log"]["value"] == "kafka://user:***@broker:9092"
    plain = folder.ok("config")
    assert "hunter2" not in plain
    assert "NOESIUM_CONCURRENCY" in plain


# -- schemas ---------------------------------------------------------------------------------------------


def test_schemas_are_written_checked_and_found_stale(folder: Folder) -> None:
    written = folder.ok("schema", "write").splitlines()
    assert "schemas/envelope.avsc" in written
    assert folder.ok("schema", "write") == ""
    folder.ok("schema", "check")
    (folder.path / "schemas" / "envelope.avsc").write_text("{}")
    done = folder.run("schema", "check")
    assert done.returncode == 1
    assert done.stdout == "stale: schemas/envelope.avsc\n"


def test_a_change_that_breaks_readers_of_an_older_release_is_found(folder: Folder) -> None:
    folder.ok("schema", "write")
    folder.ok("schema", "write", "--dir", "old")
    path = folder.path / "old" / "events" / "run.completed" / "1.0.0.json"
    schema = json.loads(path.read_text())
    schema["properties"]["gone"] = {"type": "string"}
    path.write_text(json.dumps(schema))
    folder.ok("schema", "check")
    done = folder.run("schema", "check", "--against", "old")
    assert done.returncode == 1
    assert "incompatible: run.completed 1.0.0" in done.stdout
    assert folder.run("schema", "check", "--against", "older").returncode == 2


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "code", "error", "hint"),
    [
        (("run", "agents.nope", "x"), 2, "no agent module 'agents.nope'", "agents.echo, agents.helper"),
        (("run", "nope", "x"), 2, "no agent module 'nope'", "agents.echo, agents.helper"),
        (("run", "agents.echo:Nope", "x"), 2, "agents.echo has no Nope.", "agents.echo:AGENT"),
        (("run", "agents.empty", "x"), 2, "agents.empty has no AGENT.", "AGENT = "),
        (("run", "agents.broken", "x"), 2, "a_module_that_is_not_there", "agents/broken.py, line 3"),
        (("worker", "agents.broken"), 2, "a_module_that_is_not_there", "agents/broken.py, line 3"),
        (("run", ECHO), 2, "Give either a QUESTION, or --input JSON, or --resume RUN", "noesium run --help"),
        (("run", ECHO, "  "), 2, "The question is empty", "in quotes"),
        (
            ("run", ECHO, "x", "--resume", "y"),
            2,
            "Give either a QUESTION, or --input JSON, or --resume RUN",
            "noesium run --help",
        ),
        (("run", ECHO, "x", "--times", "0"), 2, "--times of echo: input should be greater than", "How often"),
        (("run", ECHO, "x", "--times", "many"), 2, "--times of echo", "How often"),
        (("run", ECHO, "x", "--ending", "?"), 2, "--ending", "noesium run --help"),
        (("run", ECHO, "x", "--lod"), 2, "No such option", "noesium run --help"),
        (("run", ECHO, "x", "--docs", "nowhere"), 2, "There is no folder nowhere", "--docs DIR"),
        (("run", ECHO, "x", "--log", "kafak://localhost:9092"), 2, "no log called kafak://", "kafka://"),
        (("run", ECHO, "x", "--log", "localhost:9092"), 2, "is not a log URL", "kafka://localhost:9092"),
        (("run", ECHO, "x", "--log", "sqlite://x.db"), 2, "a file has no host", "sqlite:///x.db"),
        (("run", ECHO, "--resume", "x", "--log", "sqlite:///x.db"), 3, "no log at sqlite:///x.db", "--log"),
        (("run", ECHO, "--resume", ""), 2, "RUN is empty", "noesium run --help"),
        (("show", ""), 2, "RUN is empty", "noesium show --help"),
        (("events", " "), 2, "RUN is empty", "noesium events --help"),
        (("cancel", ""), 2, "RUN is empty", "noesium cancel --help"),
        (("signal", "", "go"), 2, "RUN is empty", "noesium signal --help"),
        (("topics", "--log", "sqlite:///nowhere/x.db"), 3, "no log at sqlite:///nowhere/x.db", "--log"),
        (("runs",), 3, "There is no log at", "--log"),
        (("broker", "logs"), 3, "no broker was started", "noesium broker up"),
        (("schema", "check"), 2, "There is no folder schemas", "noesium schema write"),
    ],
)
def test_bad_input_is_one_line_of_error_with_a_hint_and_writes_nothing(
    folder: Folder, args: tuple[str, ...], code: int, error: str, hint: str
) -> None:
    done = folder.run(*args)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("agent.stopped")]
    assert lines[0].startswith("error: ")
    assert error in lines[0]
    assert hint in "\n".join(lines[1:])
    assert all(line.startswith("  ") for line in lines[1:])
    if "--docs" not in args:
        assert not list(folder.path.rglob("*.db"))


@pytest.mark.parametrize(
    ("docs", "error"), [("nowhere", "There is no folder nowhere"), ("empty", "no documents")]
)
def test_a_researcher_without_documents_is_bad_input(tmp_path: Path, docs: str, error: str) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copytree(ROOT / "agents", tmp_path / "agents")
    folder = Folder(tmp_path)
    done = folder.run("run", "agents.researcher", "Why?", "--docs", docs)
    assert done.returncode == 2
    assert done.stdout == ""
    first = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert error in first
    assert "--docs DIR" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["show", "events", "cancel"])
def test_a_run_id_that_does_not_exist_is_bad_input(used: tuple[Folder, str], command: str) -> None:
    folder, _ = used
    done = folder.run(command, "ffff")
    assert done.returncode == 2
    assert done.stderr.startswith("error: There is no run ffff on sqlite:///")
    assert "noesium runs" in done.stderr


def test_a_run_to_go_on_with_is_looked_up_before_the_agents_start(used: tuple[Folder, str]) -> None:
    folder, _ = used
    done = folder.run("run", ECHO, "--resume", "deadbeef", "--docs", "nowhere")  # it would fail to start
    assert done.returncode == 2
    assert done.stderr.startswith("error: There is no run deadbeef on sqlite:///")


def test_a_run_of_another_agent_cannot_be_resumed_as_this_one(used: tuple[Folder, str]) -> None:
    folder, run_id = used
    done = folder.run("run", "agents.helper", "--resume", run_id)
    assert done.returncode == 2
    assert f"Run {run_id} is one of echo" in done.stderr


def test_a_file_that_is_no_log_is_named_and_left_as_it_is(folder: Folder) -> None:
    file = folder.path / "notes.txt"
    file.write_text("not a log\n" * 1000)
    done = folder.run("run", ECHO, "x", "--log", "sqlite:///notes.txt")
    assert done.returncode == 3
    assert "notes.txt" in done.stderr.splitlines()[0]
    assert file.read_text() == "not a log\n" * 1000


def test_no_colour_and_no_escape_codes_reach_a_pipe(used: tuple[Folder, str]) -> None:
    folder, run_id = used
    plain = Folder(folder.path)
    del plain.env["NO_COLOR"]
    for args in (("show", run_id), ("tail",), ("run", ECHO, "--resume", run_id), ("runs", "--nope")):
        done = plain.run(*args)
        assert "\x1b" not in done.stdout + done.stderr
