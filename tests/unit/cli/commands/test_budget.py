"""`noesium budget`: what users and tenants may spend, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noesium_stream.cli.exits import OK, USAGE
from tests.support.command import Folder


def test_a_budget_is_said_and_listed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, NOESIUM_HOME=str(tmp_path / "home"))
    done = folder.run("budget", "set", "user:ada", "usd=5,calls=3", "--slice", "0")
    assert (done.returncode, done.stdout) == (OK, "set user:ada\n"), done.stderr
    assert "wait for `noesium worker agents.treasurer`" in done.stderr
    folder.run("budget", "set", "tenant:acme", "tokens=1000")
    found = {one["account"]: one for one in json.loads(folder.run("budget", "list", "--json").stdout)}
    assert found["user:ada"]["limits"] == {"nano_usd": 5_000_000_000, "calls": 3}
    assert found["user:ada"]["slice_percent"] == 0
    listed = folder.run("budget", "list").stdout
    assert "$5.000000, 3 calls" in listed
    assert "1,000 tokens" in listed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "ada", "usd=5"), "'ada' names no account."),
        (("set", "user:ada", "euros=5"), "'euros=5' is no limit; say it as usd=0.5,calls=20."),
        (("set", "user:ada", "calls=many"), "calls='many' is no number."),
        (("set", "user:ada", "calls=-1"), "calls: Input should be greater than or equal to 0"),
        (("set", "user:ada", "usd=nan"), "usd: "),
        (("set", "user:ada", "seconds=5"), "The budget of user:ada limits usd, tokens and calls."),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    folder = Folder(tmp_path, NOESIUM_HOME=str(tmp_path / "home"))
    done = folder.run("budget", *arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
