"""What `python -m tests.sim` does, in a process whose texts are hashed as they are to be."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Final

from noesium_stream.clock import SystemClock
from tests.sim.budgets import budget_stage
from tests.sim.plants import PLANTS, catch
from tests.sim.play import MakeStage, Outcome, play, played, usual_stage
from tests.sim.schedules.stage import schedule_stage

SHARE: Final = 20
"""So many seeds are given to a process at a time, and fewer of the last ones, so that all end together."""

_SHOWN: Final = 60

_WORLDS: Final[dict[str, MakeStage]] = {
    "": usual_stage,
    "budgets": budget_stage,
    "schedules": schedule_stage,
}
"""By the option that asks for them."""


def run(args: argparse.Namespace) -> int:
    """Play what the arguments say; 1 if anything failed."""
    if args.planted:
        return _play_planted(args.only)
    world = next((name for name in _WORLDS if getattr(args, name, False)), "")
    if args.seed is not None:
        return _play_one(args.seed, world)
    seeds = range(args.first, args.first + args.seeds)
    return _play_many(seeds, args.jobs, args.hash_seed, args.traces, world)


def _play_one(seed: int, world: str) -> int:
    outcome = play(seed, make_stage=_WORLDS[world])
    for line in outcome.said:
        print(line)
    print(json.dumps({"seed": seed, "trace": outcome.trace, **outcome.counts}))
    for fault in outcome.faults:
        print(f"seed {seed}: {fault}")
    return 1 if outcome.faults else 0


def _play_many(seeds: range, jobs: int, hash_seed: int, traces: bool, world: str) -> int:
    clock = SystemClock()
    begun = clock.monotonic()
    failed, counts = 0, Counter[str]()
    for outcome in _all(seeds, jobs, world):
        counts.update(outcome.counts)
        if traces:
            print(f"seed {outcome.seed} trace {outcome.trace}")
        if outcome.faults:
            failed += 1
            again = f"python -m tests.sim --seed {outcome.seed}" + (
                f" --hash-seed {hash_seed}" if hash_seed else ""
            )
            again += f" --{world}" if world else ""
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


def _all(seeds: range, jobs: int, world: str) -> Iterable[Outcome]:
    if jobs <= 1:
        yield from played(seeds, _WORLDS[world])
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        for outcomes in pool.map(partial(_listed, world), _shares(seeds, jobs)):
            yield from outcomes


def _shares(seeds: range, jobs: int) -> Iterator[range]:
    while seeds:
        size = max(1, min(SHARE, len(seeds) // (2 * jobs)))
        yield seeds[:size]
        seeds = seeds[size:]


def _listed(world: str, seeds: range) -> list[Outcome]:
    return list(played(seeds, _WORLDS[world]))


def _play_planted(only: Sequence[str] | None) -> int:
    unknown = sorted(set(only or ()) - set(PLANTS))
    if unknown:
        sys.exit(f"no such planted bug: {', '.join(unknown)}; there are {', '.join(sorted(PLANTS))}")
    missed = 0
    for name in only or PLANTS:
        outcome = catch(PLANTS[name])
        missed += outcome is None
        found = None if outcome is None else {"seed": outcome.seed, "faults": outcome.faults[:3]}
        print(json.dumps({"planted": name, "caught": found}), flush=True)
    return 1 if missed else 0
