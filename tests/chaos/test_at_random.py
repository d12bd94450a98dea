"""The answer of `noesium run`, and what `noesium show` says of it, while workers are killed at random.

One trial, under a seed that is new in every session; the last lines of a session name it. Many seeds, with
longer questions and more of them at the same time, for minutes:

    pytest -m soak -s tests/chaos/test_at_random.py
"""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.chaos.at_random import Trial, play_trial
from tests.chaos.launcher import Launcher
from tests.chaos.play import folder_for
from tests.support.kafka import KafkaServer
from tests.support.parallel import count

SEEDS = 20


async def trials(kafka: KafkaServer, seeds: range, **options: int) -> list[Trial]:
    found = []
    with folder_for(None) as folder:
        async with Launcher(folder) as launcher:
            for seed in seeds:
                own = Path(folder) / f"r{secrets.token_hex(4)}"
                found.append(await play_trial(launcher, own, kafka.bootstrap, seed, **options))
                print(found[-1], *found[-1].faults, sep="\n  ", flush=True)
    return found


async def test_the_answer_is_that_of_an_undisturbed_run_while_workers_are_killed_at_random(
    kafka: KafkaServer, request: pytest.FixtureRequest
) -> None:
    seed = secrets.randbelow(1_000_000)
    count(request.config, f"chaos: workers killed at random, seed {seed}")
    [trial] = await trials(kafka, range(seed, seed + 1))
    assert trial.faults == [], trial
    assert min(trial.killed, trial.paused, trial.takeovers) > 0, trial


@pytest.mark.soak
@pytest.mark.timeout(3_600)
async def test_the_answer_is_that_of_an_undisturbed_run_under_many_seeds(kafka: KafkaServer) -> None:
    found = await trials(kafka, range(SEEDS), questions=4, naps=20, for_s=60)
    assert [fault for trial in found for fault in trial.faults] == []
    assert min(trial.takeovers for trial in found) > 0
    assert min(trial.killed for trial in found) > 5
    assert sum(trial.paused for trial in found) > SEEDS
