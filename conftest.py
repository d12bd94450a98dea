"""How many processes run the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_MOST = 4
_TESTS = Path(__file__).parent / "tests"


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores, since tests wait a lot; none besides this one for a few files.

    Four are enough: each takes memory, and the tests share one broker.
    """
    paths = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    if not any(path.is_dir() and path.is_relative_to(_TESTS) for path in paths):
        return 0
    return min((os.cpu_count() or 1) + 1, _MOST)
