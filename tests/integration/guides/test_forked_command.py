"""The command that the tests of guides have in place of an installed `noesium` behaves as that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import Reader, read_guide

WORKER = "noesium worker agents.librarian --docs deploy 2>said &"
AT_WORK = "until grep -q 'at work' said; do sleep 0.05; done"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return read_guide("agent", tmp_path)


def test_it_has_its_arguments_its_input_and_its_exit_code(reader: Reader) -> None:
    done = reader.shell("noesium guide 'a b'", code=2)
    assert "a b" in done.stderr
    assert done.stdout == ""
    assert "/undo" in reader.shell("echo /help | noesium chat --as ada").stdout


def test_variables_that_are_read_at_the_start_are_its_own(reader: Reader) -> None:
    (reader.path / "other").mkdir()
    (reader.path / "other" / "planted.py").write_text("graph = 1\n")
    done = reader.shell("PYTHONPATH=other noesium run planted:graph", code=2)
    assert "planted" in done.stderr
    assert "No module" not in done.stderr


@pytest.mark.parametrize(("sent", "code", "stops"), [("TERM", 0, True), ("KILL", 137, False)])
def test_a_signal_reaches_the_program(reader: Reader, sent: str, code: int, stops: bool) -> None:
    # The shell's output ends when the program has ended, too: it holds the same pipe.
    done = reader.shell(f"{WORKER} {AT_WORK}; kill -{sent} $!; code=0; wait $! || code=$?; echo $code")
    said = (reader.path / "said").read_text()
    assert done.stdout == f"{code}\n", said
    assert said.endswith("stopped\n") is stops
