"""Workers are killed at every named instant: nothing is lost, doubled, or folded otherwise.

Each is played on one log, and on both with `-m "soak or not soak"`.

Each point is played under one seed, which is new in every session; the last lines of a session name it.
More: `python -m tests.chaos --seeds 20`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator

import pytest

from tests.chaos.play import Play, caught, folder_for, play_all, said_of
from tests.chaos.points import POINTS
from tests.chaos.scene import Outcome
from tests.support.chosen import chosen, on_a_log_in_turn
from tests.support.kafka import KafkaServer
from tests.support.parallel import count

pytestmark = pytest.mark.timeout(3_600)

SEEDS = 1
JOBS = 3


PLANTED = {
    "publish_twice": Play("sqlite", "after-intent", 0),
    "commit_offsets_early": Play("sqlite", "before-handler-commit", 0),
    "call_again_after_a_takeover": Play("sqlite", "after-effect", 0),
}
"""Each is tried again if it was not caught: how effects interleave is chance."""


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, kafka_server: KafkaServer) -> Iterator[list[Outcome]]:
    """Of all points, several at a time: what they cost is mostly waiting, for sessions to end."""
    wanted = chosen(request, "name", "log")
    first = secrets.randbelow(1_000_000)
    plays = [Play(log, name, first + n) for name, log in wanted for n in range(SEEDS)]
    for _ in range(3):
        plays += [play._replace(plant=plant) for plant, play in PLANTED.items()]
    with folder_for(None) as folder:
        yield asyncio.run(play_all(folder, kafka_server.bootstrap, plays, JOBS))


@pytest.mark.parametrize(("name", "log"), on_a_log_in_turn(sorted(POINTS)))
def test_who_is_killed_there_leaves_nothing_lost_doubled_or_diverged(
    request: pytest.FixtureRequest, outcomes: list[Outcome], name: str, log: str
) -> None:
    if log == "kafka":
        request.getfixturevalue("kafka")  # counts the test as one on it
    wanted = (name, log, None)
    found = [outcome for outcome in outcomes if (outcome.point, outcome.log, outcome.plant) == wanted]
    assert len(found) == SEEDS
    seeds = " and ".join(str(seed) for seed in sorted(outcome.seed for outcome in found))
    count(request.config, f"chaos: workers killed at every point, seeds {seeds}")
    assert not [line for outcome in found for line in said_of(outcome)], "\n".join(map(str, found))
    assert all(outcome.caught_up_s is not None for outcome in found)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_caught(outcomes: list[Outcome], plant: str) -> None:
    tried = [outcome.faults for outcome in outcomes if outcome.plant == plant]
    assert caught(plant, outcomes), tried
