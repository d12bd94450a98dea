"""`noesium keys`: made, trusted, listed, rotated and revoked on a log in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noesium_stream.cli.commands.keys import keys_command
from noesium_stream.errors import ConfigError, LogUnavailableError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator's folder: the root of trust, and a log."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOESIUM_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NOESIUM_KEY_PASSWORD", raising=False)
    (tmp_path / "root.json").write_text(said(run("new", "ops", "--for", "*")))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "log.db").touch()
    monkeypatch.setenv("NOESIUM_PUBLIC_KEYS", "root.json")
    monkeypatch.setenv("NOESIUM_SIGNING_KEY", "ops.key")
    monkeypatch.setenv("NOESIUM_SIGNATURES", "required")
    return tmp_path


def run(*args: str, text: str | None = None) -> Result:
    """Run a command; an error of the product is in `exception`."""
    return CliRunner().invoke(keys_command, args, input=text)


def said(result: Result) -> str:
    """What a command printed; it has to succeed."""
    assert result.exception is None, result.exception
    return result.stdout


def listed() -> dict[str, dict[str, Any]]:
    """The keys by id."""
    return {key["id"]: key for key in json.loads(said(run("list", "--json")))}


def test_a_key_is_made_trusted_rotated_and_revoked(folder: Path) -> None:
    public = said(run("new", "alice-1", "--for", "alice", "--for", "role:auditor", "--out", "a.key"))
    assert json.loads(public)["alice-1"]["speaks_for"] == ["alice", "role:auditor"]
    assert (folder / "a.key").stat().st_mode & 0o777 == 0o600
    trusted = run("trust", "-", text=public)
    assert "alice-1 is trusted for alice, role:auditor" in trusted.stderr
    assert "trusts all of them already" in run("trust", "-", text=public).stderr
    assert listed()["alice-1"]["status"] == listed()["ops"]["status"] == "trusted"
    assert listed()["ops"]["registry_offset"] is None
    rotated = run("rotate", "alice-1", "alice-2", "--overlap", "1")
    assert "alice-2 is trusted; alice-1 counts until" in rotated.stderr
    assert listed()["alice-2"]["speaks_for"] == ["alice", "role:auditor"]
    assert listed()["alice-1"]["status"] == "trusted"
    assert listed()["alice-1"]["revoked"] is not None
    said(run("revoke", "alice-1", "--since", "2020-01-01T00:00:00Z", "--reason", "stolen"))
    assert listed()["alice-1"]["status"] == "revoked"
    assert "alice-2" in said(run("list"))


def test_the_first_key_is_trusted_on_a_log_that_is_not_there_yet(folder: Path) -> None:
    public = said(run("new", "alice-1", "--for", "alice", "--out", "a.key"))
    (folder / "home" / "log.db").unlink()
    assert isinstance(run("list").exception, LogUnavailableError)
    assert "alice-1 is trusted for alice" in run("trust", "-", text=public).stderr
    assert listed()["alice-1"]["status"] == "trusted"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("new", "a b", "--for", "a"), "key id"),
        (("new", "ops", "--for", "a"), "exists already"),
        (("new", "a", "--for", "a", "--until", "soon"), "no time"),
        (("trust", "absent.json"), "No such file"),
        (("revoke", "carol"), "no key 'carol'"),
        (("rotate", "carol", "carol-2"), "no key carol"),
    ],
)
def test_a_mistake_is_one_error(folder: Path, args: tuple[str, ...], problem: str) -> None:
    result = run(*args)
    assert isinstance(result.exception, ConfigError)
    assert problem in str(result.exception)
    assert not (folder / "carol-2.key").exists()


def test_who_is_no_operator_rotates_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said(run("trust", "-", text=said(run("new", "alice-1", "--for", "alice"))))
    monkeypatch.setenv("NOESIUM_SIGNING_KEY", "alice-1.key")
    result = run("rotate", "ops", "mine")
    assert isinstance(result.exception, ConfigError)
    assert "not an operator's" in str(result.exception)
    assert not (folder / "mine.key").exists()
