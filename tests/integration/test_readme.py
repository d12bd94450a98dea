"""The README, followed from top to bottom in a fresh clone with an environment of its own.

Two things differ about the line for the tests, which `.ci/run` runs whole in a fresh clone: it only collects
them, and what the tests need is that of the environment that runs this test, which that line has made.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compiled import compile_in
from tests.support.pages import LONG_S, README, ROOT, Reader, pages

QUESTION = "What happens when a process dies?"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader in a bare clone."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=LONG_S)
    # The pages are those of the working tree; the code is the clone's, as it was committed.
    for page in pages():
        (clone / page.relative_to(ROOT)).write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    compile_in(clone)
    # `python3` is the one that runs these tests, not whatever else is first on the path.
    own = tmp_path / "bin"
    own.mkdir()
    (own / "python3").symlink_to(os.path.realpath(sys.executable))
    reader = Reader(README, clone)
    reader.env["PATH"] = os.pathsep.join([str(clone / ".venv" / "bin"), str(own), reader.env["PATH"]])
    reader.env.pop("VIRTUAL_ENV", None)
    return reader


@pytest.mark.timeout(2 * LONG_S)
def test_the_readme_works_as_it_is_written(reader: Reader) -> None:
    the_two_commands(reader)
    shown = reader.bash("look").stdout
    assert QUESTION in shown
    assert "▸ corpus.search  librarian" in shown
    assert "capability.completed" in shown
    an_example_for_each(reader)
    reader.end()


def the_two_commands(reader: Reader) -> None:
    done = reader.bash("start")
    assert done.stdout.startswith("> ")
    first_source = done.stdout.partition("Sources\n")[2].splitlines()[0]
    assert re.match(r"\s*\[1\] (README|noesium_stream/guides/\w+)\.md:", first_source)
    assert "process dies" in done.stdout
    assert "researcher 2.0.0 begins" in done.stderr
    # The first command installs a wheel, the second one the folder itself.
    assert reader.shell("noesium guide agent").stdout.startswith("# "), "the wheel lacks the guides"
    share_packages(reader.path / ".venv")
    collected = reader.bash("tests", PYTEST_ADDOPTS="--collect-only", PIP_NO_DEPS="1").stdout
    assert re.search(r"\d{3,} tests collected", collected)


def share_packages(environment: Path) -> None:
    """Let it see, behind its own packages, those of the environment that runs this test, and `pytest`."""
    [site] = environment.glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "shared.pth").write_text("\n".join(others), encoding="utf-8")
    command = environment / "bin" / "pytest"
    command.write_text(f'#!/bin/sh\nexec "{environment}/bin/python" -P -m pytest "$@"\n', encoding="utf-8")
    command.chmod(0o755)


def an_example_for_each(reader: Reader) -> None:
    refunded = reader.bash("refund").stdout
    assert '"receipt": "paid 120"' in refunded
    assert "as recorded (completed), 1 step" in refunded
    assert (reader.path / "paid.txt").read_text().startswith("120 ")
    assert (reader.path / "paid.txt").read_text().count("\n") == 1

    assert re.search(r"^run\.completed\s+\d+$", reader.bash("outcomes").stdout, re.MULTILINE)

    try:
        operated = reader.bash("operator").stdout
    except BaseException:
        reader.shell("noesium broker down", code=None)
        raise
    assert f"kafka://localhost:{reader.port}" in operated
    assert "▸ corpus.search  librarian" in operated
