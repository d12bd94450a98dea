"""Workers, a strict log and a clock in one process under a seeded scheduler: a hundred plays.

Each is judged by what is on the log, and by a ledger of what was done outside. Thousands of them:

    pytest -m soak tests/sim
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def sim(*args: str) -> subprocess.CompletedProcess[str]:
    """`python -m tests.sim` in a process of its own: the texts' hash seed has to be set before it starts."""
    command = [sys.executable, "-m", "tests.sim", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3_000, check=False)


MANY = pytest.param(1_000, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])


@pytest.mark.parametrize("seeds", [30, MANY])
@pytest.mark.parametrize(("hash_seed", "first"), [(0, 0), (1, 1_000), (2, 2_000)])
def test_nothing_is_lost_doubled_or_diverged_whatever_a_seed_does(
    hash_seed: int, first: int, seeds: int
) -> None:
    ended = sim("--seeds", str(seeds), "--first", str(first), "--hash-seed", str(hash_seed))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{seeds} seeds, 0 failed" in ended.stdout


@pytest.mark.parametrize("seeds", [20, pytest.param(1_000, marks=MANY.marks)])
def test_no_account_pays_more_than_it_has_whatever_a_seed_does(seeds: int) -> None:
    ended = sim("--budgets", "--seeds", str(seeds))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{seeds} seeds, 0 failed" in ended.stdout


@pytest.mark.parametrize("seeds", [20, pytest.param(1_000, marks=MANY.marks)])
def test_each_tick_comes_once_whatever_a_seed_and_clocks_do(seeds: int) -> None:
    ended = sim("--schedules", "--seeds", str(seeds))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{seeds} seeds, 0 failed" in ended.stdout


def test_a_seed_plays_the_same_again() -> None:
    # In processes that have played other seeds before, and in one that has played none.
    together = sim("--seeds", "25", "--traces", "--jobs", "1").stdout.splitlines()
    apart = sim("--seeds", "5", "--first", "20", "--traces", "--jobs", "1").stdout.splitlines()
    assert [line for line in together if " trace " in line][20:] == [
        line for line in apart if " trace " in line
    ]
    assert len({line.split()[-1] for line in together if " trace " in line}) == 25


def test_a_seed_alone_tells_what_happened() -> None:
    told = sim("--seed", "4")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "worker0 starts" in told.stdout


def test_a_command_whose_append_nobody_could_answer_for_is_waited_for() -> None:
    # All others have ended while no worker lives; this one is begun when the workers are back, and naps.
    told = sim("--seed", "990635")
    assert told.returncode == 0, told.stdout + told.stderr


def test_who_stood_still_behind_an_intent_calls_nothing_that_is_safe_to_repeat_either() -> None:
    # It woke as the owner no more, and undid an idempotent effect that the next owner had undone already.
    told = sim("--seed", "1200407")
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_refused_tool_call_whose_commit_is_lost_is_not_reported_as_a_call() -> None:
    # The run's next owner found a report of an effect that is not on the log, and made it a dead letter.
    told = sim("--seed", "79")
    assert told.returncode == 0, told.stdout + told.stderr
