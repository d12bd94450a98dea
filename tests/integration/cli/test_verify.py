"""`noesium verify`, `replay`, `fork` and `diff` as real processes on the embedded log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import Folder

ECHO = "agents.echo"
UNKNOWN = "01890000-0000-7000-8000-000000000000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder.with_toys(tmp_path_factory.mktemp("verify"))


@pytest.fixture(scope="module")
def run_id(folder: Folder) -> str:
    """A run that has delegated once."""
    found: str = folder.json("run", ECHO, "good day", "--loud", "--json")["run_id"]
    return found


@pytest.fixture(scope="module")
def changed(folder: Folder) -> str:
    """The agent's code with another word in its call."""
    source = (folder.path / "agents" / "echo.py").read_text()
    (folder.path / "changed.py").write_text(source.replace('{"text": text})', '{"text": text + "!"})'))
    return "changed:Echo"


@pytest.fixture(scope="module")
def open_run(folder: Folder) -> str:
    """A run that waits for a signal, and no worker."""
    with folder.running("run", ECHO, "wait") as process:
        line = process.wait_for_error_line("run ")
        found = line.split()[1]
        process.wait_for(lambda _: "kernel.node.entered" in folder.run("events", found).stdout)
    return found


def test_a_run_verifies_against_the_code_that_made_it(folder: Folder, run_id: str) -> None:
    out = folder.ok("verify", run_id, "-o", "loud=true")
    assert out == f"{run_id}  as recorded (completed), 2 steps\n"
    assert folder.ok("verify", run_id[:-4], "--graph", ECHO, "-o", "loud=true") == out


def test_the_gate_refuses_changed_code_and_says_what_differs(
    folder: Folder, run_id: str, changed: str
) -> None:
    done = folder.run("verify", run_id, "--graph", changed, "-o", "loud=true")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{run_id}  differs (completed)",
        "  step 2, node say: the first call differs",
        '    recorded  text.upper {"text": "good day"}',
        '    now       text.upper {"text": "good day!"}',
        "    code      changed.py, function say (recorded with 1.2.0)",
    ]
    found = json.loads(folder.run("verify", run_id, "-g", changed, "-o", "loud=1", "--json").stdout)
    assert (found[0]["same"], found[0]["difference"]["node"]) == (False, "say")


def test_open_runs_that_cannot_go_on_are_told_apart(folder: Folder, open_run: str) -> None:
    out = folder.ok("verify", "--open", "--graph", ECHO)
    assert out == f"{open_run}  can go on, 0 steps\n"
    source = (folder.path / "agents" / "echo.py").read_text()
    (folder.path / "renamed.py").write_text(source.replace('"listen"', '"hear"'))
    done = folder.run("verify", "--open", "--graph", "renamed:Echo")
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        f"{open_run}  cannot go on",
        "  step 1, node listen: another node runs here",
    ]
    assert done.stderr == "1 open run, 1 of them cannot go on\n"


def test_an_open_run_that_is_pinned_to_another_version_waits_for_it(folder: Folder, open_run: str) -> None:
    source = (folder.path / "agents" / "echo.py").read_text()
    (folder.path / "newer.py").write_text(source.replace('version = "1.2.0"', 'version = "1.3.0"'))
    done = folder.run("verify", "--open", "--graph", "newer:Echo")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == f"{open_run}  cannot go on"
    assert lines[1] == "  the run: it is pinned to another graph, and waits for a worker that has it"
    assert [line.split()[:3] for line in lines[2:]] == [
        ["recorded", "version", "1.2.0,"],
        ["now", "version", "1.3.0,"],
    ]
    assert folder.run("verify", open_run, "--graph", "newer:Echo").returncode == 0


def test_replay_prints_the_state_at_a_step(folder: Folder, run_id: str) -> None:
    assert folder.json("replay", run_id, "--to", "0") == {"question": "good day"}
    last = folder.json("replay", run_id)
    assert last["answer"] == "GOOD DAY."


def test_a_fork_goes_on_with_another_value_and_diff_shows_where_it_parts(folder: Folder, run_id: str) -> None:
    given = ("fork", run_id, "--at", "1", "--set", "question=good night", "-o", "loud=true")
    fork = folder.ok(*given, "--perform").strip()
    assert folder.json("run", ECHO, "--loud", "--resume", fork, "--json")["answer"] == "GOOD NIGHT."
    done = folder.run("diff", run_id, fork)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "the same for 0 steps",
        "step 1, node listen: its delta differs at question",
        f"  {run_id}  nothing",
        f'  {fork}  "good night"',
    ]
    assert folder.ok("diff", run_id, run_id) == "the same, 2 steps\n"
    assert folder.ok("verify", fork, "-o", "loud=true").startswith(f"{fork}  as recorded (completed), 1 step")


def test_a_fork_is_a_dry_run_unless_it_is_to_be_performed(folder: Folder, run_id: str) -> None:
    given = ("fork", run_id, "--at", "1", "-o", "loud=true")
    before = folder.json("runs", "--json")
    done = folder.run(*given, "--set", "question=good night")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "step 2, node say  stops",
            '  would call  text.upper {"text": "good night"}',
            "stopped: what follows depends on results that a dry run does not have",
        ],
    )
    assert "nothing is performed; --perform starts it" in done.stderr
    same = folder.ok(*given).splitlines()
    assert same[:2] == ["step 2, node say  completed", '  as recorded  text.upper {"text": "good day"}']
    assert same[2].startswith("completed  {")
    assert '"answer": "GOOD DAY."' in same[2]
    failing = folder.run(*given, "--set", "question=fail", "--json")
    assert failing.returncode == 1
    found = json.loads(failing.stdout)
    assert (found["dry_run"], found["outcome"]) == (True, "failed")
    assert found["error"] == found["steps"][0]["error"] == "ValueError: told to fail"
    assert folder.json("runs", "--json") == before


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["verify", UNKNOWN], f"There is no run {UNKNOWN}"),
        (["verify", "RUN", "--graph", "agents.helper"], "is one of echo, and agents.helper is helper."),
        (["verify", "RUN", "--graph", "agents.broken"], "cannot be imported"),
        (["verify", "RUN", "--graph", "nowhere.at_all"], "There is no agent module 'nowhere.at_all'."),
        (["verify", "RUN", "--graph", "agents.echo:Nobody"], "agents.echo has no Nobody."),
        (["verify", "RUN", "--graph", "agents.echo:ECHO_STATE"], "agents.echo has no ECHO_STATE."),
        (["verify", "RUN", "--graph", "json:dumps"], "wants arguments"),
        (["verify", "RUN", "-o", "times=none"], "option times of echo"),
        (["verify"], "Give either run ids or --open."),
        (["verify", "--open"], "whose open runs"),
        (["replay", "RUN", "--to", "9"], "has no completed step 9."),
        (["replay", UNKNOWN], f"There is no run {UNKNOWN}"),
        (["fork", "RUN", "--at", "9"], "has no completed step 9."),
        (
            ["fork", "RUN", "--at", "1", "--set", "nothing.here=1"],
            "The state has no 'nothing.here' at this step.",
        ),
        (["fork", "RUN", "--at", "9", "--perform"], "has no completed step 9."),
        (["fork", "RUN", "--at", "1", "--set", "question"], "'question' is no PATH=VALUE."),
        (["diff", "RUN", UNKNOWN], f"There is no run {UNKNOWN}"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder: Folder, run_id: str, args: list[str], error: str) -> None:
    done = folder.run(*[run_id if arg == "RUN" else arg for arg in args])
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    first = done.stderr.splitlines()[0]
    assert first.startswith("error: ")
    assert error in first


def test_a_run_that_nobody_has_taken_up_cannot_be_replayed(tmp_path: Path) -> None:
    folder = Folder.with_toys(tmp_path)
    code = (
        "import asyncio; from noesium_stream.client import Client\n"
        "async def main():\n"
        "    async with Client() as client: print((await client.start('echo', {'question': 'x'})).id)\n"
        "asyncio.run(main())"
    )
    folder.run("run", ECHO, "first")
    Path(folder.path / "begin.py").write_text(code)
    folder.command, command = (folder.command[0], "begin.py"), folder.command
    new = folder.ok().strip()
    folder.command = command
    done = folder.run("replay", new)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Run {new} has not begun yet." in done.stderr
