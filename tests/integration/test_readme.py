"""Every snippet of the README is run, in a fresh clone, as it is printed.

Two things differ: the local broker and its address get a free port, and the line for the tests only
collects them (`.ci/run` runs that very line, whole).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from noesium_stream.cli import app
from noesium_stream.config import VARIABLES, load_all
from noesium_stream.log import open_log
from noesium_stream.log.broker import free_port
from tests.support.command import Folder
from tests.support.compiled import compile_in
from tests.support.readme import OUTPUT, README, ROOT, blocks, snippets

SNIPPETS = snippets()
QUESTION = "What happens when a process dies?"
INSTALL_S = 900.0


class Clone(Folder):
    """A fresh clone whose own environment is on the path."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.port = free_port()
        self.env["PATH"] = f"{path / '.venv' / 'bin'}{os.pathsep}{self.env['PATH']}"
        self.env.pop("VIRTUAL_ENV", None)
        self.command = (str(path / ".venv" / "bin" / "noesium"),)

    def text(self, name: str) -> str:
        """A snippet, with this clone's port."""
        body = SNIPPETS[name].body.replace("localhost:9092", f"localhost:{self.port}")
        return body.replace("noesium broker up", f"noesium broker up --port {self.port}")

    def bash(
        self, name: str, timeout_s: float = 120.0, *, code: int = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a snippet in bash; it must end with exit code `code`."""
        return self.shell(self.text(name), timeout_s, code, **env)

    def shell(
        self, text: str, timeout_s: float = 120.0, code: int = 0, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run commands in bash, which must end with exit code `code`."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.path,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == code, f"{text}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def save(self, name: str) -> Path:
        """Write the file that a snippet is, where its name says."""
        path = self.path / name.removeprefix("file ")
        path.parent.mkdir(exist_ok=True)
        path.write_text(SNIPPETS[name].body, encoding="utf-8")
        return path

    def python(self, name: str) -> str:
        """Run a snippet as a program of the clone's Python."""
        done = subprocess.run(
            [self.path / ".venv" / "bin" / "python", "-c", self.text(name)],
            cwd=self.path,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def worker(self, name: str) -> tuple[str, ...]:
        """The arguments of a snippet that is one `noesium worker` command."""
        (line,) = self.text(name).splitlines()
        assert line.startswith("noesium worker ")
        return tuple(line.split()[1:])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Clone, str, str]:
    """A clone in which the first command was run; with what that printed."""
    path = tmp_path_factory.mktemp("readme") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(path)], check=True, timeout=120)
    compile_in(path)
    # The snippets are this file's; the code is the clone's, as it was committed.
    (path / "README.md").write_text(README.read_text(encoding="utf-8"), encoding="utf-8")
    clone = Clone(path)
    # `python3` is the one that runs these tests, not whatever else is first on the path.
    own = path.parent / "bin"
    own.mkdir()
    (own / "python3").symlink_to(os.path.realpath(sys.executable))
    done = clone.bash("start", INSTALL_S, PATH=f"{own}{os.pathsep}{clone.env['PATH']}")
    return clone, done.stdout, done.stderr


@pytest.fixture(scope="module")
def tested(installed: tuple[Clone, str, str]) -> tuple[Clone, str]:
    """The clone after the second command, which only collected the tests; with what that printed."""
    clone = installed[0]
    return clone, clone.bash("tests", INSTALL_S, PYTEST_ADDOPTS="--collect-only").stdout


@pytest.fixture
def clone(installed: tuple[Clone, str, str]) -> Clone:
    return installed[0]


# -- what is in it ---------------------------------------------------------------------------------------


def test_every_block_is_named_and_every_name_is_run_by_a_test() -> None:
    unnamed = [block.body for block in blocks() if block.name is None and block.language != OUTPUT]
    assert unnamed == []
    source = Path(__file__).read_text(encoding="utf-8")
    body = source[: source.index("# -- what is in it")] + source[source.index("# -- the first") :]
    assert [name for name in SNIPPETS if f'"{name}"' not in body] == []
    assert len(SNIPPETS) == len([block for block in blocks() if block.name is not None])


def test_every_command_is_documented() -> None:
    text = README.read_text(encoding="utf-8")
    for name in app.COMMANDS:
        command = app.LazyGroup("x").get_command(click.Context(app.cli), name)
        names = [f"{name} {sub}" for sub in command.commands] if isinstance(command, click.Group) else [name]
        for full in names:
            assert re.search(rf"^\| `noesium {full}[ `]", text, re.MULTILINE), f"noesium {full}"


def test_every_setting_is_documented_with_its_variable() -> None:
    text = README.read_text(encoding="utf-8")
    for name, variable in VARIABLES.items():
        assert f"| `{name}` | `{variable}` |" in text


def test_every_exit_code_is_documented() -> None:
    text = README.read_text(encoding="utf-8")
    for code in (app.OK, app.FAILED, app.USAGE, app.UNAVAILABLE, app.CRASHED, app.INTERRUPTED):
        assert f"\n| {code} | " in text


def test_the_two_commands_are_one_line_each() -> None:
    assert SNIPPETS["start"].body.count("\n") == 1
    assert SNIPPETS["tests"].body.count("\n") == 1


# -- the first two commands ------------------------------------------------------------------------------


@pytest.mark.timeout(INSTALL_S)
def test_the_first_command_answers_a_question_from_the_projects_own_files(
    installed: tuple[Clone, str, str],
) -> None:
    _, answer, progress = installed
    assert QUESTION in SNIPPETS["start"].body
    assert answer.startswith("> ")
    first_source = answer.partition("Sources\n")[2].splitlines()[0]
    assert "[1] README.md:" in first_source
    assert "When a process dies" in answer
    assert "researcher 1.0.0 begins" in progress


@pytest.mark.timeout(INSTALL_S)
def test_the_second_command_installs_what_the_tests_need_and_finds_them(tested: tuple[Clone, str]) -> None:
    assert re.search(r"\d{3,} tests collected", tested[1])


@pytest.mark.timeout(INSTALL_S)
def test_what_happened_can_be_looked_at(clone: Clone) -> None:
    shown = clone.bash("look").stdout
    assert QUESTION in shown
    assert "▸ corpus.search  librarian" in shown
    assert "capability.completed" in shown


# -- ten minutes each ------------------------------------------------------------------------------------


@pytest.mark.timeout(INSTALL_S)
def test_a_graph_is_killed_resumed_elsewhere_approved_verified_forked_and_refused(clone: Clone) -> None:
    triage = clone.save("file triage.py")
    paid = clone.path / "paid.txt"
    killed = clone.bash("triage killed")
    assert '"Refund 120.50?"' in killed.stdout
    assert "asks: Refund 120.50?" in killed.stderr
    assert not paid.exists()
    with clone.running(*clone.worker("triage worker")) as worker:
        worker.wait_for_error_line("at work on sqlite:///", 120)
        approved = clone.bash("triage approved")
        assert "run.completed" in approved.stdout
        assert approved.stderr.startswith('approved "Refund 120.50?" of 17efc21f')
        assert same_tree(approved.stdout, shown("triage 1.0.0"))
        assert paid.read_text().count("120.50 ") == paid.read_text().count("\n") == 1

        verified = clone.bash("triage verified").stdout
        assert verified.startswith("17efc21f-ea98-8e1f-a971-041b45210d60  as recorded (completed), 2 steps")
        state = json.loads(verified.partition("\n")[2])
        assert state["broken"] is True
        assert "receipt" not in state

        forked = clone.bash("triage forked", code=1).stdout
        assert "run.completed" in forked
        assert "differs at amount" in forked
        assert [line.split()[0] for line in paid.read_text().splitlines()] == ["120.50", "20"]

    before = triage.read_text()
    refused = clone.bash("triage changed", code=1)
    assert refused.stdout.strip() == shown("17efc21f").strip()
    assert triage.read_text() != before


def shown(beginning: str) -> str:
    """The block of output in the README that begins so."""
    (found,) = [b.body for b in blocks() if b.language == OUTPUT and b.body.startswith(beginning)]
    return found


def same_tree(printed: str, tree: str) -> bool:
    """Whether `printed` has the lines of a run's tree, ids and durations aside."""

    def bare(text: str) -> list[str]:
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[\d.]+ (ms|s)\b", "…", text)
        return [" ".join(line.split()) for line in text.splitlines()]

    lines, wanted = bare(printed), bare(tree)
    return wanted in [lines[at : at + len(wanted)] for at in range(len(lines))]


@pytest.mark.timeout(INSTALL_S)
def test_a_strict_agent_has_another_one_call_its_tools(clone: Clone) -> None:
    clone.save("file shop.py")
    assert '"total": 12' in clone.bash("shop").stdout


@pytest.mark.timeout(INSTALL_S)
def test_what_was_done_is_undone_when_a_run_fails(clone: Clone) -> None:
    clone.save("file booking.py")
    failed = clone.bash("booking", code=1)
    assert failed.stdout == ""
    assert "ValueError: the card is stolen" in failed.stderr
    assert (clone.path / "released.txt").read_text() == "reservation of 12A\n"


@pytest.mark.timeout(INSTALL_S)
def test_a_graph_undoes_a_part_of_a_run_and_another_one_has_the_last_word(clone: Clone) -> None:
    clone.save("file tour.py")
    failed = clone.bash("tour", code=1)
    assert "ValueError: the tour is sold out" in failed.stderr
    lines = (clone.path / "tour.txt").read_text().splitlines()
    assert lines == ["the bus", "refund of the bus", "bill of 10", "sorry: the tour is sold out"]


@pytest.mark.timeout(INSTALL_S)
def test_a_rehearsal_and_golden_histories_are_tests_and_fail_when_the_graph_changes(
    tested: tuple[Clone, str],
) -> None:
    clone = tested[0]
    triage = clone.save("file triage.py")
    clone.save("file histories/ticket.case.json")
    clone.save("file test_triage.py")
    assert clone.bash("golden").stdout.count("1 passed") == 2
    assert "1 passed" in clone.bash("rehearsal").stdout
    triage.write_text(triage.read_text().replace("> 50", "> 500"))
    refused = clone.shell("pytest histories", code=1).stdout
    assert "step 2, node refund: the first call is not made any more" in refused
    assert "ended without the 1. approval.requested" in clone.shell(SNIPPETS["rehearsal"].body, code=1).stdout


@pytest.mark.timeout(INSTALL_S)
def test_an_executor_runs_a_graph_from_one_program_once_per_key(clone: Clone) -> None:
    clone.save("file triage.py")
    first = clone.python("executor")
    assert "'receipt': 'paid 12.50'" in first
    assert clone.python("executor") == first
    assert (clone.path / "paid.txt").read_text().count("12.50 ") == 1


@pytest.mark.timeout(INSTALL_S)
def test_a_run_is_moved_to_a_new_version_of_its_graph(clone: Clone) -> None:
    assert clone.python("moved") == "{'amount': '12.5 EUR paid', 'by': 'Ada'}\n"


@pytest.mark.timeout(INSTALL_S)
def test_a_module_moves_the_runs_of_the_module_that_it_was(clone: Clone) -> None:
    old, new = clone.save("file orders_v1.py"), clone.path / "orders.py"
    new.write_text(old.read_text())
    with clone.running("run", "orders:graph", "--input", '{"cents": 1250}', "--key", "order-1") as first:
        first.wait_for_error_line("asks: Pay?")
        run_id = first.wait_for_error_line("run ").split()[1]
    clone.save("file orders.py")
    with clone.running("worker", "orders:graph") as worker:
        clone.ok("approve", run_id, "--value", '"Ada"')
        assert "run.migrated" in clone.ok("events", run_id, "--follow")
        worker.signal()
        worker.wait()
    assert "settle" in clone.ok("show", run_id)
    clone.ok("verify", run_id, "--graph", "orders:graph")


@pytest.mark.timeout(INSTALL_S)
def test_the_checkpointer_alone_keeps_threads(clone: Clone) -> None:
    assert clone.python("checkpointer") == "{'n': 2} 3\n"


@pytest.mark.timeout(INSTALL_S)
def test_an_agent_delegates_waits_for_a_signal_and_acts_once(clone: Clone) -> None:
    clone.save("file agents/clerk.py")
    with clone.running(*clone.worker("clerk worker")) as worker:
        worker.wait_for_error_line("at work on sqlite:///", 120)
        first = clone.python("clerk program")
        assert "reply.drafted" in first.splitlines()
        assert "effect.completed" in first.splitlines()
        posted = (clone.path / "outbox.txt").read_text()
        assert first.splitlines()[-1].startswith("{'question'")
        assert f"sent, {len(posted)} characters" in first
        assert clone.python("clerk program") == first
        assert (clone.path / "outbox.txt").read_text() == posted


def test_a_handler_makes_events_of_events(clone: Clone) -> None:
    clone.save("file alarms.py")

    async def alarms() -> list[str]:
        log = await open_log(f"sqlite:///{clone.path / '.noesium' / 'log.db'}")
        try:
            topic = log.topology.events("alarms")
            await log.ensure_topics([log.topology.spec(topic)])
            return [record.event_type async for record in log.read(topic, {}, until=await log.end(topic))]
        finally:
            await log.close()

    with clone.running(*clone.worker("alarms worker")) as worker:
        worker.wait_for(lambda _: "alarms.slowest_run" in asyncio.run(alarms()), 120)


@pytest.mark.timeout(INSTALL_S)
def test_the_projection_author_s_ten_minutes(clone: Clone) -> None:
    assert clone.python("projection") == "{'run.completed': 1}\n"
    assert clone.python("own events") == "1250\n[('ada', 1250)]\n{'ada': 1250, 'grace': 300}\n"
    _, ended, count, _ = clone.python("projection inside a program").split()
    assert ended == "run.completed"
    assert int(count) > 5


@pytest.mark.timeout(INSTALL_S)
def test_a_projection_follows_is_killed_changed_redriven_and_travels(clone: Clone) -> None:
    clone.env["NOESIUM_LOG"] = "sqlite:///outcomes.db"
    try:
        source = clone.save("file outcomes.py")
        clone.shell('noesium run agents.researcher "What is a projection?"')
        first, header, row = clone.bash("project once").stdout.splitlines()
        both = f"{2 * int(first)}\n"  # the researcher's runs and the librarian's, of a question asked twice
        assert row.split()[:2] == ["outcomes", "v1"]
        assert "lag" in header

        follow = clone.text("project").split()[1:]
        with clone.running(*follow) as killed, clone.running(*follow) as other:
            for process in (killed, other):
                process.wait_for_error_line("Ctrl-C ends it", 120)
            killed.signal(signal.SIGKILL)
            clone.shell('noesium run agents.researcher "What is a projection?"')
            read = "noesium state outcomes run.completed"
            other.wait_for(lambda _: clone.shell(read).stdout == both, 120)
            again = clone.bash("project again")
            assert again.stdout == both + both
            other.signal(signal.SIGTERM)
            assert other.wait() == 0

        assert "There are no dead letters." in clone.bash("dlq").stderr
        whole = source.read_text()
        source.write_text(
            whole.replace("version = 2", "version = 3").replace("return state + 1", "raise ValueError('no')")
        )
        assert (
            f"{both.strip()} dead letters" in clone.shell("noesium project outcomes:Outcomes --once").stderr
        )
        source.write_text(whole.replace("version = 2", "version = 3"))
        redriven = clone.bash("dlq")
        assert "ValueError: no" in redriven.stdout
        assert f"{both.strip()} events folded, 0 dead letters stay" in redriven.stderr

        travelled = clone.bash("snapshots")
        assert travelled.stdout.startswith("depot/outcomes/v3/")
        assert f"outcomes v3: {both.strip()} events in" in travelled.stderr
        assert clone.shell("noesium state outcomes completed --state elsewhere").stdout == both
    finally:
        del clone.env["NOESIUM_LOG"]


@pytest.mark.timeout(INSTALL_S)
def test_the_package_s_own_projections_say_what_runs_did_and_are_searched(clone: Clone) -> None:
    rows = json.loads(clone.bash("shipped").stdout)
    runs = {key: row for key, row in rows.items() if row["kind"] == "run"}
    listed = json.loads(clone.shell("noesium runs --all --limit 1000 --json").stdout)
    assert {run["run_id"] for run in listed if run["status"] == "completed"} <= runs.keys()
    assert rows["agent/researcher"]["starts"] >= 1
    found = [line.partition(" ") for line in clone.python("search").splitlines()]
    assert found
    assert all(key in runs and text for key, _, text in found)  # which ones, the other snippets' runs decide


@pytest.mark.timeout(INSTALL_S)
def test_the_operator_s_ten_minutes(clone: Clone) -> None:
    address = f"kafka://localhost:{clone.port}"
    assert clone.bash("broker up", INSTALL_S).stdout.splitlines()[-1] == address
    try:
        with (
            clone.running(*clone.worker("librarian")) as librarian,
            clone.running(*clone.worker("researcher")) as researcher,
        ):
            librarian.wait_for_error_line(f"at work on {address}", 120)
            researcher.wait_for_error_line(f"at work on {address}", 120)
            done = clone.bash("ask kafka")
            assert "When a process dies" in done.stdout
            assert "▸ corpus.search  librarian" in done.stdout
            assert "noesium.agent.researcher.journal" in done.stdout
    finally:
        down = clone.bash("broker down")
    assert down.stdout.startswith("Apache Kafka")


@pytest.mark.timeout(INSTALL_S)
def test_the_metrics_are_printed(tested: tuple[Clone, str]) -> None:
    printed = tested[0].bash("metrics").stdout
    for metric in ("events.emitted", "events.processed", "kernel.node.duration", "capability.resolution"):
        assert f'"name": "noesium.{metric}' in printed


@pytest.mark.timeout(INSTALL_S)
def test_settings_come_from_the_file_that_is_shown(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "noesium.toml").write_text(clone.text("file noesium.toml"))
    loaded = load_all(env={}, folder=tmp_path)
    assert loaded.noesium.log == f"kafka://localhost:{clone.port}"
    assert loaded.noesium.partitions == 16
    assert loaded.agent.llm_provider == "openai"
