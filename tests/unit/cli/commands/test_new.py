"""`noesium new agent`: a project whose own test passes, or one clear error and nothing written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream.cli import app, new_project
from noesium_stream.cli.commands import new
from noesium_stream.cli.new_project import AGENT_FILES
from tests.support.pages import LONG_S


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def in_project(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


def test_the_project_passes_its_own_test_and_answers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["new", "agent", "tea_house"]) == app.OK
    assert capsys.readouterr().out == "tea_house\n"
    folder = here / "tea_house"
    made = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert made == sorted(place.format(name="tea_house") for place in AGENT_FILES.values())
    assert not any("$" in path.read_text() for path in folder.rglob("*.*") if path.is_file())

    tested = in_project(folder, "pytest", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout

    asked = in_project(folder, "noesium_stream.cli", "run", "tea_house", "Any tea?")
    assert asked.returncode == 0, asked.stderr
    assert asked.stdout == "I have not learned to answer this yet: Any tea?\n"

    remembered = in_project(folder, "noesium_stream.cli", "memory", "why", "Any tea?")
    assert "from tool:look_up" in remembered.stdout
    (line,) = re.findall(r"^noesium (schedule add .*)$", (folder / "README.md").read_text(), re.MULTILINE)
    added = in_project(folder, "noesium_stream.cli", *shlex.split(line))
    assert added.returncode == 0, added.stderr
    assert "morning  tea_house  0 7 * * *" in added.stdout


@pytest.mark.parametrize("is_there", [True, False])
def test_the_way_on_begins_with_pytest_where_it_is_missing(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if not is_there:
        monkeypatch.setattr(new, "find_spec", lambda name: None)
    assert app.run(["new", "agent", "tea_house"]) == app.OK
    tests = "pytest" if is_there else "pip install pytest && pytest"
    assert capsys.readouterr().err == (
        f'Go on with: cd tea_house && {tests} && noesium run tea_house "Who are you?"\n'
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tea-house", "Did you mean tea_house?"),
        ("Tea", "Did you mean tea?"),
        ("1st", "Begin with a letter"),
        ("../up", "Did you mean up?"),
        ("a" * 200, "at most"),
        ("", "cannot name an agent"),
        ("\x1b[2J", "cannot name an agent"),
        ("class", "a word of Python"),
        ("tests", "a folder of projects"),
        ("json", "a module that is installed"),
        ("noesium_stream", "a module that is installed"),
    ],
)
def test_a_bad_name_is_refused_and_nothing_is_written(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, why: str
) -> None:
    assert app.run(["new", "agent", name]) == app.USAGE
    captured = capsys.readouterr()
    assert why in captured.err
    assert "\x1b" not in captured.err
    assert captured.out == ""
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "folder", "dangling link"])
def test_what_exists_is_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.syspath_prepend("")  # as under `python -m`: what lies here can be imported
    place = here / "greeter"
    if kind == "file":
        place.write_text("mine")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(here / "nowhere")
    assert app.run(["new", "agent", "greeter"]) == app.USAGE
    assert "greeter exists already" in capsys.readouterr().err
    assert list(here.iterdir()) == [place]
    assert not place.is_dir() or list(place.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str, encoding: str) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(new_project.Path, "write_text", full)
    assert app.run(["new", "agent", "greeter"]) == app.UNAVAILABLE
    assert list(here.iterdir()) == []
