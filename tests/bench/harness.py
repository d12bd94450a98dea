"""How figures are measured, judged, printed and kept.

Every figure is a ratio of two sides that were measured in turn within one run, the second before the first
in every other repetition: the machine's mood changes the times and leaves the ratio alone. The ratio is taken
per repetition; the median of them is judged, the lowest and the highest are shown.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

HISTORY = Path(__file__).parent / "history.jsonl"
_LIBRARIES = (
    "confluent-kafka",
    "aiokafka",
    "fastavro",
    "orjson",
    "jsonschema-rs",
    "pydantic",
    "langgraph",
    "langgraph-checkpoint-sqlite",
)

Run = Callable[[], Awaitable[float]]
"""Measures one side once."""


@dataclass(frozen=True)
class Side:
    """One side of a figure: what it is, and a value per repetition."""

    label: str
    values: Sequence[float]


@dataclass(frozen=True)
class Figure:
    """Two sides side by side.

    `target` judges the ratio of `ours` to `theirs`, or, where `absolute`, the value of `ours` itself; None
    means that the figure is for comparison only. `at_least` tells which way is good.
    """

    group: str
    name: str
    unit: str
    ours: Side
    theirs: Side
    target: float | None = None
    at_least: bool = True
    absolute: bool = False
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Of every repetition."""
        return [ours / theirs for ours, theirs in zip(self.ours.values, self.theirs.values, strict=True)]

    @property
    def judged(self) -> float:
        """What is compared with the target."""
        return median(self.ours.values if self.absolute else self.ratios)

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or `for comparison`."""
        if self.target is None:
            return "for comparison"
        met = self.judged >= self.target if self.at_least else self.judged <= self.target
        return "met" if met else "missed"

    def lines(self) -> list[str]:
        """For people."""
        width = max(len(self.ours.label), len(self.theirs.label), 24)
        ratios = self.ratios
        verdict = self.verdict
        if self.target is not None:
            sign = ">=" if self.at_least else "<="
            of = f" {self.unit}" if self.absolute else ""
            verdict = f"target {sign} {_number(self.target)}{of}: {verdict.upper()}"
        out = [f"{self.group}: {self.name}"]
        for side in (self.ours, self.theirs):
            low, high = min(side.values), max(side.values)
            spread = f"({_number(low)} to {_number(high)})"
            out.append(f"    {side.label:<{width}} {_number(median(side.values)):>10} {self.unit} {spread}")
        low, high = min(ratios), max(ratios)
        out.append(f"    {'ratio':<{width}} {median(ratios):>10.2f} ({low:.2f} to {high:.2f}), {verdict}")
        return out + ([f"    {self.note}"] if self.note else [])

    def form(self) -> dict[str, Any]:
        """For programs."""
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "ours": _rounded(median(self.ours.values)),
            "theirs": _rounded(median(self.theirs.values)),
            "ratio": _rounded(median(self.ratios)),
            "ratios": [_rounded(ratio) for ratio in self.ratios],
            "target": self.target,
            "verdict": self.verdict,
        }


async def interleave(sides: Mapping[str, Run], repetitions: int) -> dict[str, list[float]]:
    """Measure every side `repetitions` times, in turn; each begins with a swept heap."""
    values: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(repetitions):
        for name in list(sides) if number % 2 == 0 else reversed(sides):
            gc.collect()
            value = await sides[name]()
            values[name].append(value)
            progress(f"  {name} {number + 1}/{repetitions}: {_number(value)}")
    return values


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(share * 1e6) * len(ordered) // 1_000_000) - 1))]


def progress(text: str) -> None:
    """A line for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def history_line(figures: Sequence[Figure], settings: Mapping[str, Any]) -> dict[str, Any]:
    """One run: when, of what, on what, with which result."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": {
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
            **{name: version(name) for name in _LIBRARIES},
        },
        "settings": dict(settings),
        "figures": [figure.form() for figure in figures],
    }


def keep(line: Mapping[str, Any], path: Path = HISTORY) -> None:
    """Append a run to the history."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def commit() -> str:
    """The commit that is measured, as git describes it."""
    folder = Path(__file__).parent
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip() or "unknown"


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
