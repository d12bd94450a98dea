"""The registry's bench measures what it says: a small run of every figure, by the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.command import main
from tests.bench.registry import events, folded


def test_the_command_measures_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--events", "300", "--capabilities", "100", "--repetitions", "2")
    assert main(["registry", *sizes, "--json", "--folder", str(tmp_path)]) == 0
    line = json.loads(capsys.readouterr().out)
    assert [figure["name"] for figure in line["figures"]] == [
        "fold 300 events",
        "choose among 100 offers, p50",
        "restart with 100 offers",
    ]
    assert line["failed"] == {}


def test_the_events_register_deprecate_and_register_again() -> None:
    given = events(300)
    assert len(given) == 300
    state = folded(given)
    assert state.spent
    assert state.count > len(state) > 0
