"""`noesium memory`: what it says of sources and scopes, and its exit codes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from noesium_stream.cli import app
from noesium_stream.client import Client

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs a command on a log with three facts, of which two come from mail 2 and one from mail 1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOESIUM_HOME", str(tmp_path / "home"))
    url = f"sqlite:///{tmp_path}/log.db"

    async def remember() -> None:
        async with Client(url) as client:
            memory = client.memory("shared", home=tmp_path / "home")
            for key, source in (("tea", "mail:1"), ("milk", "mail:2"), ("sugar", "mail:2")):
                await memory.write(key, "yes", source=source)
            memory.close()

    asyncio.run(remember())

    def run(*words: str) -> tuple[int, str, str]:
        code = app.run(["memory", *words, "--log", url])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--restore",)])
@pytest.mark.parametrize("source", ["nothing:1", "event:018f0000-0000-7000-8000-000000000001", "", "memory:"])
def test_a_source_from_which_nothing_comes_is_not_retracted(
    command: Command, source: str, more: tuple[str, ...]
) -> None:
    code, out, said = command("retract", source, *more)
    assert (code, out) == (2, "")
    error, hint = said.splitlines()
    assert error == f"error: No fact comes from {source!r}."
    assert "noesium memory list" in hint


def test_the_facts_that_are_gone_are_counted(command: Command) -> None:
    assert command("retract", "mail:1", "--dry-run")[2] == "1 fact would be gone.\n"
    assert command("retract", "mail:1")[2] == "1 fact is gone.\n"
    assert command("retract", "mail:2")[2] == "2 facts are gone.\n"


def test_a_source_that_is_retracted_already_stays_so(command: Command) -> None:
    assert command("retract", "mail:1")[0] == 0
    for more in ((), ("--dry-run",)):
        assert command("retract", "mail:1", *more) == (0, "", "mail:1 is retracted already.\n")
    assert command("retract", "mail:1", "--restore")[2] == "mail:1 is believed again.\n"
    assert command("retract", "mail:1", "--dry-run")[2] == "1 fact would be gone.\n"


def test_what_is_no_scope_is_bad_input(command: Command) -> None:
    for words in (("show", "tea"), ("list",), ("history", "tea"), ("why", "tea"), ("forget", "tea")):
        code, _, said = command(*words, "--scope", "nosuch")
        assert (code, "nosuch" in said) == (2, True), words
    assert command("show", "coffee")[0] == 1
    assert command("retract", "mail:1", "--dry-run", "--restore")[0] == 2
