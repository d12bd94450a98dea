"""`noesium run` on an embedded log: what its own agent cannot work on is said before there is a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from agents.analyst import Analyst
from noesium_stream.cli.agents import AgentChoice
from noesium_stream.cli.app import cli
from noesium_stream.cli.commands.runs.run_here import Question
from noesium_stream.config import load_all
from noesium_stream.errors import ConfigError

TABLES = "which tables"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--database", "notes.txt", TABLES], "'notes.txt' is no SQLite file."),
        (["--database", "missing.db", TABLES], "There is no database missing.db."),
        ([TABLES], "The question names no database."),
        (["--input", json.dumps({"question": TABLES})], "The question names no database."),
        (
            ["--input", json.dumps({"question": TABLES, "database": "notes.txt"})],
            "'notes.txt' is no SQLite file.",
        ),
    ],
)
def test_a_database_that_is_none_is_one_error_with_what_to_do_and_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOESIUM_HOME", str(tmp_path / "home"))
    (tmp_path / "notes.txt").write_text("no database")
    done = CliRunner().invoke(cli, ["run", "agents.analyst", *words])
    assert isinstance(done.exception, ConfigError)
    assert done.exception.message == said
    assert str(done.exception.hint).startswith("Give ")
    assert done.stderr == ""
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("log", "refused"), [("memory://", True), ("kafka://127.0.0.1:9092", False)])
def test_the_options_of_a_command_line_do_not_speak_for_workers_elsewhere(log: str, refused: bool) -> None:
    reference = "agents.analyst"
    asked = Question(AgentChoice({reference: Analyst}, {}), reference, load_all({"log": log}))
    said = ""
    try:
        asked.check(asked.input(TABLES))
    except ConfigError as error:
        said = error.message
    assert ("names no database" in said) is refused
