"""Byte code of what programs under test import, made once: they start a third faster with it.

Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each of hundreds of processes would compile the
package anew.
"""

from __future__ import annotations

import compileall
from pathlib import Path

import pytest

from tests.support.parallel import is_first_process

ROOT = Path(__file__).parents[2]


def compile_in(folder: Path) -> None:
    """Compile what programs import of a clone; nothing to do where that is done already."""
    for name in ("noesium_stream", "agents", "tests/support"):
        compileall.compile_dir(folder / name, quiet=2)


def pytest_configure(config: pytest.Config) -> None:
    if is_first_process(config) and not config.getoption("collectonly"):
        compile_in(ROOT)
