"""The shipped agents beside other packages `agents`: each case in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noesium_stream import shipped_agents as shipped
from tests.support.pages import ROOT

CODE = """
import sys
from pathlib import Path
package, place, clone, *references = sys.argv[1:]
# The package is found, and the agents of its clone are not.
sys.path[:] = [package, *(path for path in sys.path if path not in ("", clone))]
from noesium_stream import shipped_agents as shipped
from noesium_stream.agent import load_agent
from noesium_stream.errors import AgentLoadError
shipped._PLACES = (Path(place),)
for reference in references:
    try:
        found = load_agent(reference)
        print(reference, found.__module__, found.version)
    except AgentLoadError as error:
        print(error.message)
        print(error.hint)
"""
OWN = """
from noesium_stream import BaseGraphicAgent
class Own(BaseGraphicAgent):
    agent_type = "own"
    version = "7.0.0"
    def get_state_class(self): ...
    def _build_graph(self): ...
AGENT = Own
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the shipped agents, and nothing of the clone that these tests run in."""
    place = tmp_path / "shipped"
    for source in ROOT.glob("agents/**/*.py"):
        target = place / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(source)
    (tmp_path / "here").mkdir()
    return place


def load(place: Path, files: dict[str, str], *references: str) -> list[str]:
    """What loading these references prints, in a folder with these files."""
    here = place.parent / "here"
    for name, text in files.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    package = place.parent / "package"
    package.mkdir()
    (package / "noesium_stream").symlink_to(ROOT / "noesium_stream")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(package), str(place), str(ROOT), *references],
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_they_are_found_where_nothing_else_is(place: Path) -> None:
    said = load(place, {}, "agents.researcher", "agents.librarian")
    assert said == [
        "agents.researcher agents.researcher.agent 2.0.0",
        "agents.librarian agents.librarian.agent 2.1.0",
    ]


@pytest.mark.parametrize("marker", [{}, {"agents/__init__.py": ""}], ids=["namespace", "package"])
def test_they_stand_beside_one_s_own(place: Path, marker: dict[str, str]) -> None:
    said = load(
        place, {**marker, "agents/own.py": OWN}, "agents.researcher", "agents.own", "agents.librarian"
    )
    assert [line.rpartition(" ")[0] for line in said] == [
        "agents.researcher agents.researcher.agent",
        "agents.own agents.own",
        "agents.librarian agents.librarian.agent",
    ]


def test_one_s_own_of_the_same_name_wins(place: Path) -> None:
    said = load(place, {"agents/researcher.py": OWN}, "agents.researcher")
    assert said == ["agents.researcher agents.researcher 7.0.0"]


def test_a_mixture_is_refused(place: Path) -> None:
    said = load(place, {"agents/__init__.py": "", "agents/documents.py": ""}, "agents.researcher")
    assert said[0].startswith(
        "agents.researcher comes with the package and needs its own agents.documents, which "
    )
    assert said[0].endswith("agents/__init__.py hides.")
    assert said[1].startswith("Work in another folder")


def test_folders_that_have_nothing_to_do_with_them_hide_nothing(place: Path) -> None:
    files = {"agents/__init__.py": "", "agents/examples/__init__.py": "", "agents/examples/mine.py": OWN}
    said = load(place, files, "agents.examples.refund", "agents.examples.mine", "agents.researcher")
    assert said[0] == "There is no agent module 'agents.examples.refund'."
    assert said[-2:] == [
        "agents.examples.mine agents.examples.mine 7.0.0",
        "agents.researcher agents.researcher.agent 2.0.0",
    ]


def test_a_module_called_agents_is_named(place: Path) -> None:
    said = load(place, {"agents.py": ""}, "agents.researcher")
    assert said[0].startswith("agents.researcher comes with the package, but is hidden here by ")
    assert said[0].endswith("agents.py.")


@pytest.mark.parametrize("name", ["agents", "agents.nobody", "agent.researcher", "researcher"])
def test_nothing_else_is_lent(name: str) -> None:
    assert not shipped.lend(name)


def test_a_clone_lends_its_own() -> None:
    assert shipped.shipped_folder() == ROOT
