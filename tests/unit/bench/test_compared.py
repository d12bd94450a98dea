"""The figures in the guide "compare" are those of the bench."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.bench import kernel
from tests.bench.kernel import KernelSettings
from tests.support.pages import guide

HISTORY = Path(kernel.__file__).with_name("history.jsonl")


def row(beginning: str, unit: str) -> tuple[float, float]:
    (line,) = [one for one in guide("compare").read_text().splitlines() if one.startswith(f"| {beginning}")]
    ours, theirs = re.findall(rf"\| ([\d.]+) {unit} (?=\|)", line)
    return float(ours), float(theirs)


@pytest.mark.parametrize(
    ("place", "name"),
    [("in memory", "a node of a chain of 300, memory"), ("in a SQLite", "a node of a chain of 300, sqlite")],
)
def test_times_are_those_of_the_last_full_run(place: str, name: str) -> None:
    entries = [json.loads(line) for line in HISTORY.read_text().splitlines()]
    figures = [figure for entry in entries for figure in entry["figures"] if figure["name"] == name]
    assert row(f"a node of a chain of 300, {place}", "ms") == (
        round(figures[-1]["ours"], 2),
        round(figures[-1]["theirs"], 2),
    )


async def test_sizes_are_what_the_bench_measures(tmp_path: Path) -> None:
    once, twice = await kernel.measure_beside(KernelSettings(tmp_path, turns=(200,), message_bytes=(500,)))
    for beginning, figure in (("a conversation of 200", once), ("the same of 400", twice)):
        ours, theirs = row(beginning, "MB")
        assert figure.ours.values[0] / 1e6 == pytest.approx(ours, rel=0.05)
        assert figure.theirs.values[0] / 1e6 == pytest.approx(theirs, rel=0.05)
