"""What stands for a projection on a command line is one, or one clear error says why it is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noesium_stream.errors import ProjectionLoadError
from noesium_stream.projection.load import load_projection

SOURCE = """
from noesium_stream import BaseProjection


class Sums(BaseProjection[int]):
    name = "sums"

    def initial_state(self):
        return 0

    def apply(self, state, event):
        return state + 1


class Given(Sums):
    def __init__(self, factor):
        self.factor = factor


class Fails(Sums):
    def __init__(self):
        raise KeyError("no setting")


class Half(BaseProjection[int]):
    name = "half"

    def initial_state(self):
        return 0


MADE = Given(2)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "loaded_here.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("loaded_here", "ends_here", "breaks_here"):
        sys.modules.pop(name, None)


def test_a_module_that_may_not_be_read_is_named_with_its_owner(folder: Path) -> None:
    secret = folder / "secret.txt"
    secret.touch()
    (folder / "breaks_here.py").write_text(
        f"raise PermissionError(13, 'Permission denied', {str(secret)!r})\n"
    )
    hint = str(refused("breaks_here:Sums").hint)
    assert f"Let this user use {secret}, which belongs to {secret.owner()}" in hint


def refused(reference: str) -> ProjectionLoadError:
    with pytest.raises(ProjectionLoadError) as raised:
        load_projection(reference)
    return raised.value


def test_an_instance_that_a_module_has_made_is_taken() -> None:
    assert load_projection("loaded_here:MADE").name == "sums"


def test_a_name_that_is_no_projection_is_answered_with_those_that_are() -> None:
    error = refused("loaded_here:Summs")
    assert error.message == "loaded_here:Summs is no projection."
    assert error.hint is not None
    assert error.hint.endswith("loaded_here has: Fails, Given, Sums.")


def test_the_name_of_a_file_is_answered_with_that_of_its_module() -> None:
    error = refused("loaded_here.py:Sums")
    assert error.hint is not None
    assert error.hint.endswith("importable from the current folder: loaded_here:Sums.")


def test_what_its_own_init_raises_is_said_with_its_line() -> None:
    error = refused("loaded_here:Fails")
    assert error.message.startswith("loaded_here:Fails cannot be made: KeyError: 'no setting' (")
    assert error.message.endswith("loaded_here.py:22).")


def test_arguments_that_nobody_gives_are_said_and_what_to_do_instead() -> None:
    error = refused("loaded_here:Given")
    assert "missing 1 required positional argument: 'factor'" in error.message
    assert error.hint is not None
    assert "make one in the module" in error.hint


def test_a_method_that_is_missing_is_said() -> None:
    assert refused("loaded_here:Half").hint == "Implement `initial_state` and `apply`."


def test_a_module_that_ends_the_process_is_one_that_cannot_be_imported(folder: Path) -> None:
    (folder / "ends_here.py").write_text("raise SystemExit(0)\n")
    assert refused("ends_here:Sums").message.startswith(
        "The module 'ends_here' cannot be imported: SystemExit: 0 ("
    )


def test_a_module_that_raises_is_said_with_the_line(folder: Path) -> None:
    (folder / "breaks_here.py").write_text("x = 1\nraise RuntimeError('no')\n")
    assert refused("breaks_here:Sums").message.endswith("breaks_here.py:2)")
