"""What the commands import: those that only read, on SQLite, import no LangGraph and no client of Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.cli.app import COMMANDS
from tests.support.command import Folder
from tests.support.reading_commands import READING, arguments, prepare

SLOW = {"aiokafka", "anyio", "confluent_kafka", "langchain", "langchain_core", "langgraph"}
"""Libraries that take long to import, and that no command needs which only reads a log on SQLite."""
NOT_FOR_TEXTS = SLOW | {"asyncio", "cryptography", "fastavro", "pydantic"}
TEXTS = {("--help",), ("--version",), ("guide",), ("guide", "agent")}
"""They open no log."""
OTHERS = {
    **dict.fromkeys(("broker", "security"), "are about Kafka"),
    **dict.fromkeys(("signal", "cancel", "approve", "reject", "effect", "export", "keys", "schema"), "write"),
    **dict.fromkeys(("a2a", "mcp"), "serve agents"),
    "skills": "reads folders, and no log",
    **dict.fromkeys(("taint", "tools"), "judge tools"),
    "chat": "runs an agent",
    **dict.fromkeys(("erase", "memory", "new", "project", "snapshot"), "write"),
}
"""The commands that are not among `READING`, and why."""
CODE = """
import json, sys
from noesium_stream.cli import app
code = app.run(sys.argv[2:])
names = sorted({module.partition(".")[0] for module in sys.modules})
with open(sys.argv[1], "w") as file:
    json.dump([code, names], file)
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, str]:
    path = tmp_path_factory.mktemp("imports")
    folder = Folder.with_toys(path, NOESIUM_HOME=str(path / "home"))
    return folder, prepare(folder)


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_command_that_reads_imports_nothing_slow(
    command: tuple[str, ...], read: tuple[Folder, str], tmp_path: Path
) -> None:
    folder, run_id = read
    answer = tmp_path / "modules.json"
    said = subprocess.run(
        [sys.executable, "-c", CODE, str(answer), *arguments(command, run_id)],
        cwd=folder.path,
        env=folder.env,
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(answer.read_text())
    assert code == 0, said.stderr
    assert said.stdout or said.stderr.startswith(("There are no", "Nothing waits", "No "))
    assert (NOT_FOR_TEXTS if command in TEXTS else SLOW) & set(modules) == set()


def test_every_command_is_either_measured_here_or_excused() -> None:
    assert {command[0] for command in READING if not command[0].startswith("-")} | set(OTHERS) == set(
        COMMANDS
    )
