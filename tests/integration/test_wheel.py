"""The wheel, installed in an environment of its own: its agents work in any folder outside of the clone.

Only the build asks a package index, for setuptools. The environment takes all other packages from the one
that runs this test, which has the wheel's dependencies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.pages import LONG_S, ROOT

PAPER = "# Cranes\n\nA crane lifts nine tonnes, if the wind is below eleven metres per second.\n"
QUESTION = "How many tonnes does a crane lift?"


def run(command: Sequence[str | Path], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command without this environment's own settings."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("NOESIUM_", "PYTHON"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**outer, "NO_COLOR": "1", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG_S,
    )


def done(command: Sequence[str | Path], folder: Path, **env: str) -> str:
    ended = run(command, folder, **env)
    assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel; behind it are the packages that run this test."""
    place = tmp_path_factory.mktemp("wheel")
    names = done(["git", "ls-files", "--cached", "--others", "--exclude-standard"], ROOT).splitlines()
    for name in names:
        if (ROOT / name).is_file():
            (place / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (place / "source" / name).write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    done([*pip, "wheel", "--no-deps", "--wheel-dir", place / "wheels", place / "source"], place)
    [wheel] = (place / "wheels").iterdir()
    environment = place / "environment"
    done([sys.executable, "-m", "venv", "--without-pip", environment], place)
    done(
        [*pip, "--python", environment / "bin" / "python", "install", "--no-deps", "--no-index", wheel], place
    )
    [site] = environment.glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages" and Path(path) != site]
    (site / "of_the_tests.pth").write_text("\n".join(others), encoding="utf-8")
    return environment / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one document."""
    (tmp_path / "cranes.md").write_text(PAPER)
    return tmp_path


def ask(installed: Path, folder: Path) -> dict[str, object]:
    home = {"NOESIUM_HOME": str(folder / "home")}
    command = [installed / "noesium", "run", "agents.researcher", QUESTION, "--json"]
    answer: dict[str, object] = json.loads(done(command, folder, **home))
    return answer


def test_a_question_about_a_folder_is_answered_anywhere(installed: Path, folder: Path) -> None:
    answer = ask(installed, folder)
    assert "nine tonnes" in str(answer["answer"])
    assert "cranes.md" in str(answer["sources"])


def test_the_code_is_the_wheel_s(installed: Path, folder: Path) -> None:
    code = (
        "import noesium_stream; from noesium_stream.agent import load_agent; "
        "from noesium_stream.shipped_agents import shipped_folder; "
        "kind = load_agent('agents.researcher'); "
        "import agents.documents.reading as reading; "
        "print(noesium_stream.__file__, shipped_folder(), reading.__file__, sep='\\n')"
    )
    for path in done([installed / "python", "-c", code], folder).splitlines():
        assert path.startswith(f"{installed.parent}{os.sep}lib")


def test_a_run_of_the_clone_is_verified_by_the_wheel(installed: Path, folder: Path) -> None:
    home = {"NOESIUM_HOME": str(folder / "home")}
    clone = {**home, "PYTHONPATH": str(ROOT)}
    asked = [sys.executable, "-m", "noesium_stream.cli", "run", "agents.researcher", QUESTION, "--json"]
    run_id = json.loads(done(asked, folder, **clone))["run_id"]
    assert "as recorded (completed)" in done([installed / "noesium", "verify", run_id], folder, **home)


def test_one_s_own_agents_stand_beside_those_of_the_wheel(installed: Path, folder: Path) -> None:
    (folder / "agents").mkdir()
    (folder / "agents" / "__init__.py").write_text("")
    (folder / "agents" / "own.py").write_text("from agents.researcher import AGENT\n")
    assert "nine tonnes" in str(ask(installed, folder)["answer"])


def test_an_agent_that_neither_has_is_told_from_those_that_there_are(installed: Path, folder: Path) -> None:
    ended = run([installed / "noesium", "run", "agents.nobody", QUESTION], folder)
    assert ended.returncode == 2
    (told,) = (line for line in ended.stderr.splitlines() if "With the package come:" in line)
    assert "agents.librarian" in told
    assert "agents.researcher" in told


def test_without_the_extra_it_says_what_to_type(installed: Path, folder: Path) -> None:
    code = (
        "import sys; sys.modules['pypdf'] = None; "
        "from noesium_stream.cli import app; sys.exit(app.run(['run', 'agents.researcher', 'Why?']))"
    )
    ended = run([installed / "python", "-c", code], folder, NOESIUM_HOME=str(folder / "home"))
    assert ended.returncode == 2
    assert "Install the extra `agents`: pip install 'noesium-stream[agents]'" in ended.stderr
