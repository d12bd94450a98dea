"""What the processes of one run of the tests share: a folder, and sums at the end.

pytest-xdist runs the tests in several processes, each with session fixtures of its own. What may be there
once only, a broker say, lies in the folder, under a file lock; the process that ends last clears it away.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

_FOLDER = "noesium_folder"
_SUMS = "noesium_sums"
_folders = pytest.StashKey[Path]()
_sums = pytest.StashKey[Counter[str]]()


def shared_folder(config: pytest.Config) -> Path:
    """The folder that all processes of this run see; it is gone afterwards."""
    return config.stash[_folders]


def count(config: pytest.Config, line: str) -> None:
    """One more of `line` in this run."""
    config.stash[_sums][line] += 1


def counted(config: pytest.Config) -> dict[str, int]:
    """How often each line was counted: at the end, by all processes."""
    return dict(config.stash[_sums])


def is_first_process(config: pytest.Config) -> bool:
    """Whether this is the process that was started by hand, which outlives the others."""
    return not hasattr(config, "workerinput")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[_sums] = Counter()
    if is_first_process(config):
        folder = Path(tempfile.mkdtemp(prefix="noesium-tests-"))
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    else:
        folder = Path(config.workerinput[_FOLDER])  # type: ignore[attr-defined]
    config.stash[_folders] = folder


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process that begins where the folder is."""
    node.workerinput[_FOLDER] = str(shared_folder(node.config))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts of this process over."""
    if not is_first_process(session.config):
        session.config.workeroutput[_SUMS] = counted(session.config)  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what another process has counted; one that was killed counts nothing."""
    node.config.stash[_sums].update(getattr(node, "workeroutput", {}).get(_SUMS, {}))
