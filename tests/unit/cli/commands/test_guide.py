"""`noesium guide`."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from noesium_stream.cli import app
from noesium_stream.cli.guides import API, GUIDES
from tests.support.pages import guide


def test_without_a_name_it_lists_every_guide_with_one_line() -> None:
    done = CliRunner().invoke(app.cli, ["guide"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [*GUIDES, API]
    assert all(re.match(r"  \w+ +\S.*\.$", line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", GUIDES)
def test_it_prints_the_text_of_a_guide(name: str) -> None:
    done = CliRunner().invoke(app.cli, ["guide", name])
    assert done.exit_code == 0
    assert done.stdout.startswith("# ")
    assert "<!--" not in done.stdout
    written = guide(name).read_text(encoding="utf-8")
    assert set(done.stdout.splitlines()) <= set(written.splitlines())


def test_an_unknown_name_is_an_error_that_lists_the_guides(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["guide", "agnet"]) == app.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "There is no guide 'agnet'." in captured.err
    assert all(f"  {name} " in captured.err for name in [*GUIDES, API])
