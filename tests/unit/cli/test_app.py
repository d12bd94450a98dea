"""The root command: how fast it answers, how it fails, and what scripts can rely on."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from noesium_stream import errors
from noesium_stream.cli import app
from tests.support.command import Folder


def noesium(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "noesium_stream.cli", *args],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_names_every_command_and_imports_none_of_them(tmp_path: Path) -> None:
    code = (
        "import sys; from noesium_stream.cli import app; app.run(['--help']);"
        "heavy = {'pydantic', 'langgraph', 'confluent_kafka', 'aiokafka', 'fastavro'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    for name in app.COMMANDS:
        assert f"  {name} " in done.stdout


def test_help_answers_within_a_third_of_a_second_of_work(tmp_path: Path) -> None:
    def once() -> float:
        # Processor time: how busy the machine is with other things must not matter.
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert noesium("--help", cwd=tmp_path).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.3


@pytest.mark.parametrize("name", sorted(app.COMMANDS))
def test_the_help_line_of_each_command_is_the_first_of_its_own_help(name: str) -> None:
    command = app.LazyGroup("x").get_command(click.Context(app.cli), name)
    assert command is not None
    assert command.name == name
    assert command.help is not None
    own = " ".join(command.help.split("\n\n")[0].split())
    listed = app.COMMANDS[name][1].rstrip(".")
    assert own.startswith(listed), (own, listed)


@pytest.mark.parametrize("name", sorted(app.COMMANDS))
def test_each_command_has_help_and_every_option_of_it_is_explained(name: str, tmp_path: Path) -> None:
    command = app.LazyGroup("x").get_command(click.Context(app.cli), name)
    assert command is not None
    group = [*command.commands.values()] if isinstance(command, click.Group) else [command]
    for one in group:
        for param in one.params:
            assert not isinstance(param, click.Option) or param.help, f"{name}: {param.name}"


def test_a_misspelt_command_is_answered_with_the_one_that_it_resembles(tmp_path: Path) -> None:
    done = noesium("topcis", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "error: There is no command 'topcis'. Did you mean topics?\n  See: noesium --help\n"


@pytest.mark.parametrize("group", [(), ("new",), ("dlq",)])
def test_a_group_without_a_command_is_bad_input_and_lists_its_commands(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.run(group) == 2
    said = capsys.readouterr()
    assert said.out == ""
    first, usage, *others = said.err.splitlines()
    assert (first, usage) == (
        "error: Give a command.",
        f"  Usage: {' '.join(('noesium', *group))} [OPTIONS] COMMAND [ARGS]...",
    )
    assert "  Commands:" in others
    assert "See:" not in said.err


def test_a_misspelt_variable_is_told_by_config_too(tmp_path: Path) -> None:
    done = noesium("config", cwd=tmp_path, NOESIUM_LOGG="memory://")
    assert (done.returncode, done.stderr) == (0, "NOESIUM_LOGG means nothing here; NOESIUM_LOG does\n")


def test_a_depot_without_pushes_is_bad_input(tmp_path: Path) -> None:
    done = noesium("snapshot", "pull", "depot", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: There are no pushes in ")


def test_an_agent_that_cannot_be_imported_says_what_its_own_error_advises(tmp_path: Path) -> None:
    error = "ConfigError('The model x needs LangChain.', hint='pip install it.')"
    (tmp_path / "poet.py").write_text(f"from noesium_stream.errors import ConfigError\nraise {error}\n")
    done = noesium("run", "poet", "--input", "{}", cwd=tmp_path)
    assert done.returncode == 2
    first, advice, place = done.stderr.splitlines()
    assert first.endswith("ConfigError: The model x needs LangChain.")
    assert (advice, place) == (
        "  pip install it.",
        "  In poet.py, line 2. The whole traceback: noesium --debug ...",
    )


def test_an_unknown_option_is_bad_input(tmp_path: Path) -> None:
    done = noesium("config", "--jsno", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: No such option")


def test_a_bad_setting_is_one_line_of_error_with_a_hint_and_no_traceback(tmp_path: Path) -> None:
    done = noesium("config", cwd=tmp_path, NOESIUM_PARTITIONS="many")
    assert done.returncode == 2
    assert done.stdout == ""
    first, hint = done.stderr.splitlines()
    assert first.startswith("error: NOESIUM_PARTITIONS: 'many'")
    assert hint.startswith("  ")


@pytest.mark.parametrize("url", ["foo", "kafak://localhost:9092", "sqlite://x.db"])
def test_a_log_that_no_command_could_open_is_refused_by_config_too(tmp_path: Path, url: str) -> None:
    done = noesium("config", cwd=tmp_path, NOESIUM_LOG=url)
    assert done.returncode == 2
    assert done.stdout == ""
    first, *hint = done.stderr.splitlines()
    assert first.startswith("error: NOESIUM_LOG: ")
    assert url in first
    assert "sqlite:///" in hint[0] or "kafka://" in hint[0]


@pytest.mark.parametrize("args", [("--help",), ("run", "--help")])
def test_help_lists_every_exit_code(tmp_path: Path, args: tuple[str, ...]) -> None:
    said = " ".join(noesium(*args, cwd=tmp_path).stdout.split())
    listed = said.partition("Exit codes: ")[2]
    for code in (app.OK, app.FAILED, app.USAGE, app.UNAVAILABLE, app.CRASHED, app.INTERRUPTED):
        assert f"{code} " in listed


def test_debug_shows_the_traceback_of_an_error(tmp_path: Path) -> None:
    done = noesium("--debug", "config", cwd=tmp_path, NOESIUM_PARTITIONS="many")
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    same = noesium("config", cwd=tmp_path, NOESIUM_PARTITIONS="many", NOESIUM_DEBUG="1")
    assert "Traceback" in same.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 2),
        (errors.LogUrlError("x"), 2),
        (errors.AgentLoadError("x"), 2),
        (errors.RunNotFoundError("x"), 2),
        (errors.RunEndedError("x"), 2),
        (errors.InputDiffersError("x"), 2),
        (errors.TopicNotFoundError("x"), 2),
        (errors.LogUnavailableError("x"), 3),
        (errors.LogCorruptError("x"), 3),
        (errors.LogFullError("x"), 3),
        (errors.BrokerError("x"), 3),
        (errors.RunFailedError("x"), 1),
        (errors.RunCancelledError("x"), 1),
        (errors.CapabilityNotFoundError("x"), 1),
    ],
)
def test_exit_codes_tell_bad_input_from_a_missing_log_from_a_failed_run(
    error: errors.NoesiumError, code: int
) -> None:
    assert app.exit_code(error) == code


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A stand-in for `noesium config` that raises what is put in here."""
    module = import_module("noesium_stream.cli.commands.config")
    raised: list[BaseException] = []

    @click.command("config")
    def command() -> None:
        raise raised[0]

    monkeypatch.setattr(module, "config_command", command)
    return raised


def test_an_unexpected_exception_is_one_line_that_says_where_the_traceback_is(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(ZeroDivisionError("by zero"))
    assert app.run(["config"]) == 70
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: unexpected ZeroDivisionError: by zero"
    file = Path(said[1].rpartition(" ")[2].rstrip("."))
    assert "raise raised[0]" in file.read_text()
    file.unlink()


def test_a_place_that_may_not_be_written_is_one_clear_error(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(PermissionError(errno.EACCES, "Permission denied", "/here/.noesium"))
    assert app.run(["config"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "error: /here/.noesium cannot be used: Permission denied."
    assert "NOESIUM_HOME" in said[1]


def test_a_program_that_may_not_be_executed_is_one_clear_error(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text("")
    with pytest.raises(PermissionError) as raised:
        subprocess.run([program], check=False)
    failing.append(raised.value)
    assert app.run(["config"]) == 3
    said = capsys.readouterr().err.splitlines()
    assert said[0] == f"error: {program} cannot be executed: Permission denied."
    assert f"Let this user execute {program}" in said[1]


@pytest.mark.parametrize("command", ["run", "worker"])
def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path, command: str) -> None:
    folder = Folder.with_toys(tmp_path, NOESIUM_HOME=str(tmp_path / "file" / "home"))
    (tmp_path / "file").write_text("no folder")
    asked = ["hello"] if command == "run" else []
    done = folder.run(command, "agents.echo", *asked)
    assert done.returncode == 3, done.stderr
    said = done.stderr.splitlines()
    assert said[0] == f"error: The folder {tmp_path}/file/home cannot be made: Not a directory."
    assert "NOESIUM_HOME" in said[1]


def test_what_fails_in_a_group_of_tasks_is_reported_as_itself(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(
        ExceptionGroup("g", [ExceptionGroup("h", [errors.LogUnavailableError("nobody", hint="wait")])])
    )
    assert app.run(["config"]) == 3
    assert capsys.readouterr().err == "error: nobody\n  wait\n"


def test_ctrl_c_in_a_command_is_exit_code_130(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(KeyboardInterrupt())
    assert app.run(["config"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    code = (
        "import sys, os; from noesium_stream.cli import app;"
        "r, w = os.pipe(); os.close(r); os.dup2(w, 1); sys.exit(app.run(['config', '--json']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 141
    assert done.stderr == ""
