"""What a run of the projections' bench was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProjectionSettings:
    """Sizes of everything; the defaults are those of a full run.

    `folder` is where states go: it should lie on a disk. `shipped` is how many events are replayed beside a
    shipped snapshot; the figure's own number is 5,000,000, which takes minutes.
    """

    folder: Path
    events: int = 100_000
    batch: int = 2_000
    repetitions: int = 3
    keys: int = 1_000_000
    fewer_keys: int = 100_000
    tail: int = 2_000
    shipped: int = 1_000_000
