"""pytest plugin `noesium_replay`: golden histories are tests.

Every `*.history.jsonl` below the tested folders is replayed against the code named in its head, and fails
with the first difference. `pytest --noesium-record` records histories that have a `*.case.json` again instead
(see `noesium_stream.testing.golden`); a case without a history fails until it is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

RECORD: Final = "--noesium-record"
_HISTORY: Final = ".history.jsonl"
_CASE: Final = ".case.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that records."""
    group = parser.getgroup("noesium", "golden histories of agents")
    group.addoption(RECORD, action="store_true", help="Record the histories of all *.case.json anew.")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect histories to replay, cases to record, and cases without a history."""
    records = parent.config.getoption(RECORD)
    if file_path.name.endswith(_CASE):
        history = _beside(file_path, _CASE, _HISTORY)
        if records or not history.exists():
            return CaseFile.from_parent(parent, path=file_path)
    elif file_path.name.endswith(_HISTORY) and not (records and _beside(file_path, _HISTORY, _CASE).exists()):
        return HistoryFile.from_parent(parent, path=file_path)
    return None


class HistoryDiffersError(Exception):
    """The code does not do what is recorded."""


class HistoryFile(pytest.File):
    """A golden history."""

    def collect(self) -> Iterator[pytest.Item]:
        """Collect one test."""
        yield ReplayItem.from_parent(self, name="replay")


class CaseFile(pytest.File):
    """A case: how to record a golden history."""

    def collect(self) -> Iterator[pytest.Item]:
        """Collect one test, which records."""
        yield RecordItem.from_parent(self, name="record")


class _Item(pytest.Item):
    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Location and name of the test."""
        return self.path, None, f"{self.path.name}::{self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The difference alone, or what is wrong with the case; a traceback for anything else."""
        if isinstance(
            excinfo.value, HistoryDiffersError | import_module("noesium_stream.errors").ConfigError
        ):
            return str(excinfo.value)
        return super().repr_failure(excinfo)


class ReplayItem(_Item):
    """Replays a history."""

    def runtest(self) -> None:
        """Replay the history.

        Raises:
            HistoryDiffersError: the code does not do what is recorded.
        """
        golden = _golden()
        case = _beside(self.path, _HISTORY, _CASE)
        options = golden.read_case(case).get("options") if case.exists() else None
        verdict = asyncio.run(golden.replay_history(golden.read_history(self.path), options))
        if not verdict.is_same:
            raise HistoryDiffersError(
                f"{self.path.name} is not what the code does now.\n{verdict.difference}\n"
                f"If that is meant, and no open run needs the old way: pytest {RECORD}"
            )


class RecordItem(_Item):
    """Records the history of a case."""

    def runtest(self) -> None:
        """Record the history if requested.

        Raises:
            HistoryDiffersError: recording is not requested, and there is no history.
        """
        history = _beside(self.path, _CASE, _HISTORY)
        if not self.config.getoption(RECORD):
            raise HistoryDiffersError(
                f"{self.path.name} has no {history.name}: record it with pytest {RECORD}"
            )
        golden = _golden()
        golden.write_history(history, asyncio.run(golden.record_case(golden.read_case(self.path))))


def _golden() -> Any:
    # Loaded on first use: pytest loads the plugin in every project of the environment.
    return import_module("noesium_stream.testing.golden")


def _beside(path: Path, ending: str, other: str) -> Path:
    return path.with_name(path.name.removesuffix(ending) + other)
