"""The deterministic simulation by hand.

    python -m tests.sim --seeds 1000           play seeds 0 to 999, as many at a time as there are processors
    python -m tests.sim --seed 134             play one and tell what happened in it
    python -m tests.sim --budgets --seeds 200  play with users and tenants that pay for models (`budgets.py`)
    python -m tests.sim --schedules --seeds 200  play with schedules, and clocks that jump (`schedules`)
    python -m tests.sim --planted              play with bugs that are planted, each until it is caught

A seed that fails is named, with what did not hold; exit code 1. The same seed (and `--hash-seed`, which is 0
unless given) gives the same play on any machine, with the same versions of Python and of the libraries.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module


def main(given: Sequence[str] | None = None) -> int:
    """Play what the arguments say; 1 if anything failed.

    All that plays is imported in the process that plays, and not before that one is begun.
    """
    args = _parser().parse_args(given)
    if os.environ.get("PYTHONHASHSEED") != str(args.hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": str(args.hash_seed)}
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *(given or sys.argv[1:])], environment)
    return int(import_module("tests.sim.playing").run(args))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="play this one alone, and tell all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--hash-seed", type=int, default=0, help="PYTHONHASHSEED")
    parser.add_argument("--planted", action="store_true", help="with planted bugs: each has to be caught")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="these planted bugs alone")
    world = parser.add_mutually_exclusive_group()
    world.add_argument("--budgets", action="store_true", help="with users and tenants that pay for models")
    world.add_argument("--schedules", action="store_true", help="with schedules, and clocks that jump")
    parser.add_argument("--traces", action="store_true", help="print a number per seed that sums its play up")
    return parser


if __name__ == "__main__":
    sys.exit(main())
