"""What all tests share: a real Kafka (`tests/support/kafka.py`) and the backends of the contract suite."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No test depends on how fast something is.
settings.register_profile("noesium", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("noesium")

_MOST = 4
_TESTS = Path(__file__).parent

pytest_plugins = [
    "tests.support.parallel",
    "tests.support.compiled",
    "tests.support.failures",
    "tests.support.quick",
    "tests.support.kafka",
    "tests.support.backends",
    "tests.support.patience",
]

# A shell starts background jobs with Ctrl-C ignored, and who ignores it passes that on: processes under test
# would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more than there are cores, since tests wait a lot; none besides this one for a few files.

    Four are enough: each takes memory, and the tests share one broker.
    """
    paths = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    if not any(path.is_dir() and path.is_relative_to(_TESTS) for path in paths):
        return 0
    return min((os.cpu_count() or 1) + 2, _MOST)
