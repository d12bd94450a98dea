"""Faults of brokers, workers and lines by hand (`python -m tests.chaos --fault NAME`), one after the other.

A play prints a line: what was lost, doubled or diverged, how long it took to catch up after healing, and what
happened. Folders of plays that failed are kept, with all that brokers and workers said.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from tests.chaos.cluster_play import CATCH_UP_S, Outcome, play

SHOWN = 20
LONGEST = 400


def faults_main(
    names: Sequence[str], seeds: Sequence[int], minutes: float | None, keep: Path | None, *, tells: bool
) -> int:
    """Play these faults under these seeds; 1 if anything did not hold.

    Args:
        names: of faults.
        seeds: of what is drawn.
        minutes: how long each goes on; None: as long as it should.
        keep: a folder for all that is kept; None: only what failed is.
        tells: whether what happens is printed as it does.
    """
    outcomes = []
    for name in names:
        for seed in seeds:
            outcomes.append(_played(name, seed, minutes, keep, tells))
    failed = [outcome for outcome in outcomes if outcome.faults]
    slowest = max((outcome.caught_up_s for outcome in outcomes), default=0.0)
    print(
        f"{len(outcomes)} plays, {len(failed)} failed; caught up within {slowest:.1f} s of {CATCH_UP_S:.0f}"
    )
    return 1 if failed else 0


def _played(name: str, seed: int, minutes: float | None, keep: Path | None, tells: bool) -> Outcome:
    folder = keep / f"{name}-{seed}" if keep is not None else Path(mkdtemp(prefix=f"chaos-{name}-{seed}-"))
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with (folder / "said").open("w") as said:

        def say(line: str) -> None:
            print(line, file=said, flush=True)
            if tells:
                print(line, flush=True)

        outcome = asyncio.run(play(name, seed, folder, minutes=minutes, say=say))
    print(f"{outcome.line()}; {time.monotonic() - begun:.0f} s", flush=True)
    for fault in outcome.faults[:SHOWN]:
        print(f"  {fault[:LONGEST]}")
    if outcome.faults:
        lasting = "" if minutes is None else f" --minutes {minutes:g}"
        print(
            f"  kept in {folder}; again: python -m tests.chaos --fault {name} --seed {seed}{lasting}",
            flush=True,
        )
    elif keep is None:
        shutil.rmtree(folder)
    return outcome
