"""The deterministic simulation by hand.

    python -m tests.sim --seeds 1000           play seeds 0 to 999, as many at a time as there are processors
    python -m tests.sim --seed 134             play one and tell what happened in it
    python -m tests.sim --planted              play with bugs that are planted, each until it is caught

A seed that fails is named, with what did not hold; exit code 1. The same seed (and `--hash-seed`, which is 0
unless given) gives the same play on any machine, with the same versions of Python and of the libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from noesium_stream.clock import SystemClock
from tests.sim.plants import PLANTS, catch
from tests.sim.play import Outcome, play, played

SHARE: Final = 20
"""So many seeds are given to a process at a time."""

_SHOWN: Final = 60


def main(given: Sequence[str] | None = None) -> int:
    """Play what the arguments say; 1 if anything failed."""
    args = _parser().parse_args(given)
    if os.environ.get("PYTHONHASHSEED") != str(args.hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": str(args.hash_seed)}
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *(given or sys.argv[1:])], environment)
    if args.planted:
        return _play_planted(args.only)
    if args.seed is not None:
        return _play_one(args.seed)
    return _play_many(range(args.first, args.first + args.seeds), args.jobs, args.hash_seed, args.traces)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one alone, and tell all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--hash-seed", type=int, default=0, help="PYTHONHASHSEED")
    parser.add_argument("--planted", action="store_true", help="with planted bugs: each has to be caught")
    parser.add_argument("--only", choices=sorted(PLANTS), nargs="+", help="these planted bugs alone")
    parser.add_argument("--traces", action="store_true", help="print a number per seed that sums its play up")
    return parser


def _play_one(seed: int) -> int:
    outcome = play(seed)
    for line in outcome.said:
        print(line)
    print(json.dumps({"seed": seed, "trace": outcome.trace, **outcome.counts}))
    for fault in outcome.faults:
        print(f"seed {seed}: {fault}")
    return 1 if outcome.faults else 0


def _play_many(seeds: range, jobs: int, hash_seed: int, traces: bool) -> int:
    clock = SystemClock()
    begun = clock.monotonic()
    failed, counts = 0, Counter[str]()
    for outcome in _all(seeds, jobs):
        counts.update(outcome.counts)
        if traces:
            print(f"seed {outcome.seed} trace {outcome.trace}")
        if outcome.faults:
            failed += 1
            again = f"python -m tests.sim --seed {outcome.seed}" + (
                f" --hash-seed {hash_seed}" if hash_seed else ""
            )
            for fault in outcome.faults[:_SHOWN]:
                print(f"seed {outcome.seed}: {fault}")
            print(f"seed {outcome.seed}: to see it again: {again}")
    took_s = clock.monotonic() - begun
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    print(
        f"{len(seeds)} seeds, {failed} failed, in {took_s:.1f} s: {len(seeds) / took_s * 60:,.0f} per minute"
    )
    print(f"in them: {told}")
    return 1 if failed else 0


def _all(seeds: range, jobs: int) -> Iterable[Outcome]:
    shares = [seeds[at : at + SHARE] for at in range(0, len(seeds), SHARE)]
    if jobs <= 1:
        for share in shares:
            yield from played(share)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        for outcomes in pool.map(played, shares):
            yield from outcomes


def _play_planted(only: Sequence[str] | None) -> int:
    missed = 0
    for name in only or PLANTS:
        outcome = catch(PLANTS[name])
        missed += outcome is None
        found = None if outcome is None else {"seed": outcome.seed, "faults": outcome.faults[:3]}
        print(json.dumps({"planted": name, "caught": found}), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
