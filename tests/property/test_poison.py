"""Random and mutated records: each becomes an event or a dead letter, and memory stays as it is.

A million of them, in some minutes:

    pytest tests/property/test_poison.py -m soak -s
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.poison import expected


def folded(count: int, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.support.poison", str(count), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads(run.stdout)
    print(found)
    return found


def test_every_record_becomes_an_event_or_a_letter(tmp_path: Path) -> None:
    found = folded(20_000, tmp_path)
    events, letters = expected(20_000)
    assert (found["events"], found["letters"]) == (events, letters)
    assert events + letters == 20_000
    assert min(events, letters) > 5_000
    assert found["rss_end"] - found["rss_early"] < 40 * 1024


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_records_take_no_more_memory_than_the_first(tmp_path: Path) -> None:
    found = folded(1_000_000, tmp_path)
    assert found["events"] + found["letters"] == 1_000_000
    assert found["held_keys"] > 20_000
    assert found["rss_end"] - found["rss_early"] < 40 * 1024
