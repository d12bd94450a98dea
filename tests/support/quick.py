"""The mark `quick`: unit tests, and the contract on memory and SQLite. None needs a broker.

pytest -m quick        in at most three minutes on two cores
"""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_FOLDERS = (_TESTS / "unit", _TESTS / "contract")
_KAFKA = ("kafka", "kafka_server", "own_broker")
_LEFT_OUT = ("dev", "docker", "root", "soak")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is quick."""
    for item in items:
        if _is_quick(item):
            item.add_marker(pytest.mark.quick)


def _is_quick(item: pytest.Item) -> bool:
    if not any(item.path.is_relative_to(folder) for folder in _FOLDERS):
        return False
    if any(item.get_closest_marker(name) for name in _LEFT_OUT):
        return False
    fixtures = getattr(item, "fixturenames", ())
    backend = item.callspec.params.get("backend") if hasattr(item, "callspec") else None
    return backend != "kafka" and not any(name in fixtures for name in _KAFKA)
