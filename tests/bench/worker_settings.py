"""What a run of the worker's bench was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WorkerSettings:
    """Sizes of everything; the defaults are those of a full run.

    `folder` is where the workers keep their state: it should lie on a disk. `runs` is how many runs the
    memory is watched over; the figure's own number is 200,000, which takes some ten minutes. `events` take a
    handler six seconds: what it does once, when its partitions come, is a tenth of two.
    """

    folder: Path
    repetitions: int = 3
    events: int = 300_000
    graph_runs: int = 4_000
    steps: int = 150
    runs: int = 20_000
    finished: int = 100_000
    open_runs: int = 1_000
    queued: int = 10_000
    asked: int = 100
