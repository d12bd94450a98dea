"""What a run of the bench was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Sizes of everything; the defaults are those of a full run.

    `folder` is where SQLite's files go: it should lie on a disk, or `FULL` means nothing.
    """

    folder: Path
    events: int = 100_000
    batch: int = 2_000
    repetitions: int = 3
    commits: int = 400
    warm_up: int = 1_000
    wakes: int = 300
    idle_s: float = 10.0
    tail_events: int = 1_000_000
