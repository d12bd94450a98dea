"""The bench of the prompt measures processes that succeed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.prompt import _processor_s
from tests.support.command import Folder


def test_a_process_has_a_processor_time(tmp_path: Path) -> None:
    assert _processor_s([sys.executable, "-c", "print(sum(range(100_000)))"], Folder(tmp_path)) > 0


def test_a_command_that_fails_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ended with 3"):
        _processor_s([sys.executable, "-c", "raise SystemExit(3)"], Folder(tmp_path))
