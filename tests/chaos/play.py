"""Plays seeds of points: each in a folder and on a log of its own, several at a time."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from confluent_kafka import KafkaException

from tests.chaos.launcher import Launcher
from tests.chaos.plants import PLANTS
from tests.chaos.points import POINTS
from tests.chaos.scene import Outcome, Scene
from tests.chaos.stage import PATIENCE_S, Stage, said
from tests.support.kafka import remove_topics

MEMORY = Path("/dev/shm")
LONGEST_S = 2 * PATIENCE_S + 120.0
"""What takes longer has stuck: the arrival and the outcomes have their own patience, and say more."""


async def play(
    launcher: Launcher,
    folder: Path,
    url: str,
    outcome: Outcome,
    bootstrap: str | None = None,
) -> None:
    """Kill a process at a point, let others finish, and judge.

    Args:
        launcher: starts the processes.
        folder: for all that they keep; new.
        url: of a log that nobody else uses.
        outcome: says which point, seed and planted bug, and takes what became of it.
        bootstrap: of the broker, if the log is Kafka's.
    """
    name = outcome.point
    begun = time.monotonic()
    last = begun

    def passed(phase: str) -> None:
        nonlocal last
        now = time.monotonic()
        outcome.phases[phase], last = now - last, now

    async with Stage(launcher, folder, url, f"{name} {outcome.seed}", outcome.plant) as stage:
        passed("made")
        scene = Scene(stage, POINTS[name], name, outcome, bootstrap)
        try:
            await scene.play(passed)
            await stage.stop()
            passed("stopped")
            await stage.judge()
            passed("judged")
        except TimeoutError:
            tails = [f"{one.name}: {said(one)}" for one in stage.processes]
            stage.faults.append(f"lost: waited for too long; {tails}")
        finally:
            await scene.close()
        outcome.faults = stage.faults
    passed("closed")
    outcome.took_s = last - begun


class Play(NamedTuple):
    """A run: on which log, killed at which point, under which seed, with which planted bug if any."""

    log: str
    point: str
    seed: int
    plant: str | None = None


async def play_all(
    folder: Path,
    bootstrap: str,
    plays: Sequence[Play],
    jobs: int,
    shown: Callable[[str], None] = lambda line: None,
) -> list[Outcome]:
    """Play them, so many at a time; with a planted bug only until it is caught.

    Args:
        folder: for all that is kept meanwhile.
        bootstrap: of the broker, for Kafka.
        plays: which.
        jobs: how many at a time.
        shown: takes a line about each.
    """
    few = asyncio.Semaphore(jobs)
    outcomes: list[Outcome] = []
    async with Launcher(folder) as launcher:

        async def one(play: Play) -> None:
            async with few:
                if play.plant is not None and caught(play.plant, outcomes):
                    return
                outcome = await played(launcher, folder, bootstrap, play)
            outcomes.append(outcome)
            shown("\n".join([str(outcome), *said_of(outcome)]))

        await asyncio.gather(*(one(each) for each in plays))
    return outcomes


def caught(plant: str, outcomes: Sequence[Outcome]) -> bool:
    """Whether a planted bug was seen in one of the runs that had it, by what it does."""
    faults = [fault for outcome in outcomes if outcome.plant == plant for fault in outcome.faults]
    return any(fault.startswith(PLANTS[plant].words) for fault in faults)


def said_of(outcome: Outcome) -> list[str]:
    """What did not hold in a run, and how to see it again."""
    if not outcome.faults:
        return []
    again = f"python -m tests.chaos --point {outcome.point} --log {outcome.log} --seed {outcome.seed}"
    return [*(f"  seed {outcome.seed}: {fault}" for fault in outcome.faults), f"  again: {again}"]


async def played(launcher: Launcher, folder: Path, bootstrap: str, which: Play) -> Outcome:
    """One run, in a folder and on a log of its own; both stay if something is wrong.

    A broker that had the topics of 300 runs took four times as long for everything.
    """
    name = f"c{secrets.token_hex(4)}"
    own = folder / name
    url, broker = f"sqlite:///{own}/log.db?partitions=2", None
    if which.log == "kafka":
        url, broker = f"kafka://{bootstrap}?namespace={name}&partitions=2", bootstrap
    outcome = Outcome(which.seed, which.point, which.log, which.plant)
    try:
        async with asyncio.timeout(LONGEST_S):
            await play(launcher, own, url, outcome, broker)
    except Exception as error:
        where = "".join(traceback.format_exception(error))[-4000:]  # of a time-out: what it was waiting for
        outcome.faults = [f"harness: {error!r}\n{where}"]
    if not outcome.faults:
        shutil.rmtree(own, ignore_errors=True)
        if broker is not None:
            try:
                await asyncio.to_thread(remove_topics, broker, name)
            except (KafkaException, TimeoutError) as error:
                outcome.notes.append(f"its topics are left: {error!r}")
    return outcome


@contextmanager
def folder_for(keep: Path | None) -> Iterator[Path]:
    """A folder in memory where there is one: who is killed loses nothing that the kernel was given."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.absolute()
        return
    folder = Path(mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
