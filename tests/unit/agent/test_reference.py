"""From what a user writes to a module: names, paths, and what is said of anything else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noesium_stream.agent.reference import load_module, parse_reference
from noesium_stream.errors import AgentLoadError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with modules; what is imported from it is forgotten at the end."""
    folder = tmp_path / "here"
    (folder / "crew").mkdir(parents=True)
    (folder / "crew" / "__init__.py").write_text("WHO = 'crew'\n")
    (folder / "crew" / "reference_scorer.py").write_text("from crew import WHO\n")
    (folder / "reference_triage.py").write_text("WHO = 'triage'\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("triage", ("triage", "")),
        ("triage:", ("triage", "")),
        ("agents.triage:graph", ("agents.triage", "graph")),
        ("./triage.py:Triage.graph", ("./triage.py", "Triage.graph")),
    ],
)
def test_a_reference_has_a_module_and_perhaps_a_name(text: str, parts: tuple[str, str]) -> None:
    assert parse_reference(text) == parts


def test_a_module_that_may_not_be_read_is_named_with_its_owner(here: Path) -> None:
    secret = here / "secret.txt"
    secret.touch()
    (here / "reference_barred.py").write_text(
        f"raise PermissionError(13, 'Permission denied', {str(secret)!r})\n"
    )
    with pytest.raises(AgentLoadError, match="PermissionError") as refused:
        load_module("reference_barred")
    assert f"Let this user use {secret}, which belongs to {secret.owner()}" in str(refused.value.hint)


@pytest.mark.parametrize("text", ["", " ", ":graph", "triage:a:b", "triage:graph()", "triage:1"])
def test_what_has_no_module_or_no_name_is_refused(text: str) -> None:
    with pytest.raises(AgentLoadError, match=r"names no module|is no name of a class or a graph") as refused:
        parse_reference(text)
    assert "FILE.py:NAME" in str(refused.value.hint)


@pytest.mark.parametrize(
    "written", ["reference_triage", "reference_triage.py", "./reference_triage", "{here}/reference_triage.py"]
)
def test_a_module_may_be_given_by_its_file(here: Path, written: str) -> None:
    module = load_module(written.format(here=here))
    assert (module.__name__, module.WHO) == ("reference_triage", "triage")


@pytest.mark.parametrize(
    "written", ["crew/reference_scorer.py", "./crew/reference_scorer", "crew.reference_scorer"]
)
def test_a_file_in_a_folder_is_a_module_of_its_package(here: Path, written: str) -> None:
    assert load_module(written).__name__ == "crew.reference_scorer"


def test_a_folder_with_an_init_is_a_package(here: Path) -> None:
    assert load_module("./crew").WHO == "crew"


def test_a_file_elsewhere_is_imported_from_above_its_package(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    module = load_module("../crew/reference_scorer.py")
    assert (module.__name__, module.WHO) == ("crew.reference_scorer", "crew")


@pytest.mark.parametrize(
    "written", ["./nobody", "./nobody.py", "..triage", "nowhere/triage.py", "~/no/such.py"]
)
def test_a_file_that_is_not_there_is_named(here: Path, written: str) -> None:
    with pytest.raises(AgentLoadError) as refused:
        load_module(written)
    assert refused.value.message == f"{written} does not exist."


def test_a_folder_without_an_init_is_no_module(here: Path) -> None:
    (here / "papers").mkdir()
    with pytest.raises(AgentLoadError, match=r"\./papers has no __init__\.py: it is a folder, and no module"):
        load_module("./papers")


def test_a_name_with_a_dot_is_no_module(here: Path) -> None:
    (here / "triage.v2.py").write_text("")
    with pytest.raises(AgentLoadError, match=r"'triage\.v2' is no name of a module"):
        load_module("./triage.v2.py")


def test_a_file_never_stands_for_another_module_of_that_name(here: Path) -> None:
    (here / "json.py").write_text("raise AssertionError('never imported')\n")
    with pytest.raises(AgentLoadError, match="Python has another module 'json'"):
        load_module("./json.py")


def test_a_misspelt_module_is_guessed(here: Path) -> None:
    with pytest.raises(AgentLoadError) as refused:
        load_module("reference_trage")
    assert str(refused.value.hint).startswith("Did you mean reference_triage?")


def test_a_module_that_exits_is_an_error_of_it(here: Path) -> None:
    (here / "reference_exits.py").write_text("raise SystemExit(0)\n")
    with pytest.raises(AgentLoadError, match="'reference_exits' cannot be imported: SystemExit: 0"):
        load_module("reference_exits")
