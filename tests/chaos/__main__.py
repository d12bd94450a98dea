"""The fault harness by hand.

    python -m tests.chaos --seeds 20                        every point 20 times, on both logs
    python -m tests.chaos --point during-commit --log kafka --seeds 5
    python -m tests.chaos --point during-commit --log kafka --seed 3 --keep DIR
    python -m tests.chaos --planted commit_offsets_early --seeds 20       with a bug, until it is caught
    python -m tests.chaos --faults --seeds 3                brokers, workers and lines: `cluster_faults`
    python -m tests.chaos --fault storm --seed 1 --minutes 2

Each run is printed on a line: its seed, what was lost, doubled or diverged, and how long it took to catch up
after the kill. Exit code 1 if anything did not hold. A run does under its seed what it did before: which
arrival at the point is the last one, who goes on, what is asked; how processes interleave is the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.chaos.check import counted
from tests.chaos.cluster_faults import FAULTS
from tests.chaos.cluster_main import faults_main
from tests.chaos.plants import PLANTS
from tests.chaos.play import Play, caught, folder_for, play_all
from tests.chaos.points import POINTS
from tests.support.kafka import start_kafka

LOGS = ("sqlite", "kafka")
MEMORY = Path("/dev/shm")


def main(given: Sequence[str] | None = None) -> int:
    """Play what the arguments say; 1 if anything did not hold."""
    args = _parser().parse_args(given)
    seeds = range(args.first, args.first + args.seeds) if args.seed is None else [args.seed]
    if args.fault or args.faults:
        return faults_main(args.fault or list(FAULTS), seeds, args.minutes, args.keep, tells=args.tell)
    points = args.point or (PLANTS[args.planted].points if args.planted else list(POINTS))
    logs = [args.log] if args.log else list(LOGS)
    plays = [Play(log, point, seed, args.planted) for seed in seeds for log in logs for point in points]
    begun = time.monotonic()
    with folder_for(args.keep) as folder, ExitStack() as stack:
        bootstrap = ""
        if "kafka" in logs:
            bootstrap = stack.enter_context(start_kafka(folder / "broker")).bootstrap
        outcomes = asyncio.run(
            play_all(folder, bootstrap, plays, args.jobs, lambda line: print(line, flush=True))
        )
    if args.planted:
        found = caught(args.planted, outcomes)
        print(f"{args.planted}: {'caught' if found else 'not caught'} in {len(outcomes)} runs")
        return 0 if found else 1
    failed = [outcome for outcome in outcomes if outcome.faults]
    totals = counted([fault for outcome in outcomes for fault in outcome.faults])
    slowest = max((outcome.caught_up_s or 0.0 for outcome in outcomes), default=0.0)
    told = ", ".join(f"{count} {word}" for word, count in totals.items())
    took_s = time.monotonic() - begun
    runs = f"{len(outcomes)} runs in {took_s:.0f} s, {len(failed)} failed"
    print(f"{runs}: {told}; caught up within {slowest:.1f} s")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=2, help="how many of each point")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument(
        "--point", choices=sorted(POINTS), action="append", help="this point alone; again: more"
    )
    parser.add_argument("--faults", action="store_true", help="all faults of brokers, workers and lines")
    parser.add_argument(
        "--fault", choices=sorted(FAULTS), action="append", help="this fault alone; again: more"
    )
    parser.add_argument("--minutes", type=float, help="how long a fault goes on [default: 1; storm: 10]")
    parser.add_argument("--tell", action="store_true", help="of faults, tell what happens as it does")
    parser.add_argument("--planted", choices=sorted(PLANTS), help="a bug that all workers are to have")
    parser.add_argument("--log", choices=LOGS, help="this log alone")
    parser.add_argument("--jobs", type=int, default=4, help="runs at a time")
    parser.add_argument("--keep", type=Path, help="a folder for what the processes keep and say")
    return parser


if __name__ == "__main__":
    sys.exit(main())
