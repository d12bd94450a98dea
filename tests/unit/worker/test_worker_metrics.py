"""The metrics of RFC-1001 §15.2, as OpenTelemetry's SDK collects them in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "support" / "measured.py"
"""In a process of its own: a meter provider is set once in a process, and for good."""


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path_factory.mktemp("measured"))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def test_events_on_the_log_are_counted_once(points: dict[str, list[dict[str, Any]]]) -> None:
    (emitted,) = points["noesium.events.emitted"]
    assert emitted["attributes"] == {"noesium.log": "memory"}
    assert emitted["value"] == points["on the log"][0]["value"] > 10


def test_events_are_counted_by_who_dealt_with_them(points: dict[str, list[dict[str, Any]]]) -> None:
    processed = {
        (point["attributes"]["noesium.reader"], point["attributes"]["noesium.name"]): point["value"]
        for point in points["noesium.events.processed"]
    }
    assert processed["worker", "sample"] == 2
    assert processed["projection", "types"] == points["folded"][0]["value"] > 10


def test_attempts_of_nodes_are_timed_with_their_outcome(points: dict[str, list[dict[str, Any]]]) -> None:
    nodes = {
        (point["attributes"]["noesium.node"], point["attributes"]["noesium.outcome"]): point
        for point in points["noesium.kernel.node.duration"]
    }
    assert nodes["asks", "completed"]["count"] == 1
    assert nodes["asks", "failed"]["count"] == 1
    assert nodes["asks", "completed"]["attributes"]["noesium.agent_type"] == "sample"
    assert 0.02 <= nodes["asks", "completed"]["sum"] < 30


def test_resolutions_rebuilds_and_tokens_are_measured(points: dict[str, list[dict[str, Any]]]) -> None:
    (resolved,) = points["noesium.capability.resolution.duration"]
    assert resolved["attributes"] == {"noesium.capability": "text.shout", "noesium.outcome": "resolved"}
    assert resolved["count"] == 1
    (rebuilt,) = points["noesium.projection.rebuild.duration"]
    assert rebuilt["attributes"] == {"noesium.name": "types"}
    (used,) = points["noesium.llm.tokens.used"]
    assert (used["attributes"], used["value"]) == ({"noesium.model": "fake:parrot"}, 7)
