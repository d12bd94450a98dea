"""The process that executes a statement, killed at any time: what is committed has its key, or nothing is."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from noesium_stream.tool.builtin.sql import sqlite_guard
from tests.support.sql_tools import content, shop


def request(path: Path, call_id: str) -> dict[str, Any]:
    return {
        "path": str(path),
        "sql": "INSERT INTO journal VALUES (?)",
        "parameters": [call_id],
        "writes": True,
        "may_read": ["journal"],
        "may_write": ["journal"],
        "rows": 10,
        "cell": 100,
        "bytes": 10_000,
        "time_s": 10,
        "memory_bytes": 256 * 1024 * 1024,
        "call_id": call_id,
        "keys": "calls",
    }


def served(path: Path, call_id: str, killed_after_s: float | None = None) -> dict[str, Any] | None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", sqlite_guard.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(request(path, call_id)).encode())
    process.stdin.close()
    if killed_after_s is not None:
        time.sleep(killed_after_s)
        process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    out = process.stdout.read()
    process.stdout.close()
    process.wait()
    answer: dict[str, Any] | None = json.loads(out) if out else None
    return answer


def test_a_change_is_made_once_however_its_process_dies(tmp_path: Path) -> None:
    path = shop(tmp_path)
    begun = time.monotonic()
    assert served(path, "whole") is not None
    whole_s = time.monotonic() - begun
    drawn = random.Random(7)
    calls = [f"call {at}" for at in range(12)]
    for call_id in calls:
        served(path, call_id, drawn.uniform(0, whole_s))
        answer = served(path, call_id)
        assert answer is not None
        assert answer["changed"] == 1, answer
    assert [line for (line,) in content(path, "journal")] == ["whole", *calls]
    assert sorted(call_id for call_id, _ in content(path, "calls")) == sorted(["whole", *calls])


def test_the_process_uses_the_standard_library_alone() -> None:
    """It is started without the folders of packages."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", sqlite_guard.__file__], input=b"{}", capture_output=True, timeout=60
    )
    assert b"ModuleNotFoundError" not in done.stderr
    assert b"KeyError" in done.stderr  # it reads its request
