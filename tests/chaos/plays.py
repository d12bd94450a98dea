"""Plays of one run by name, and what comes of each on both logs.

    PLAYS = Plays()

    @PLAYS.play("killed while it sleeps", 4.0)
    async def sleeps(one: OneRun, for_s: float) -> None: ...

Several are played at the same time: what they cost is waiting, for sessions to end.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from tests.chaos.launcher import Launcher
from tests.chaos.one_run import OneRun, TooSlowError

JOBS: Final = 3
DEADLINES: Final = (timedelta(seconds=10), timedelta(seconds=40), timedelta(seconds=160))
"""Of what is to be ended by time; the next one, if the machine was too slow for what comes before."""

Play = Callable[[Any], Awaitable[None]]


class Opening(Protocol):
    """Makes a run's world, such as `OneRun` itself."""

    def __call__(self, launcher: Launcher, folder: Path, url: str, deadline: timedelta) -> OneRun:
        """See `OneRun`."""


class Plays(dict[str, Play]):
    """Plays, by name."""

    def play(self, name: str, *arguments: object) -> Callable[[Any], Any]:
        """Keep a function, with these arguments, under a name."""

        def keep(function: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
            assert name not in self
            self[name] = lambda one: function(one, *arguments)
            return function

        return keep


Played = dict[tuple[str, str], BaseException | None]
"""What came of each play, by its name and log; None: all held."""


async def play_all(
    folder: Path,
    bootstrap: str,
    plays: Plays,
    wanted: Iterable[tuple[str, str]],
    opened: Opening = OneRun,
) -> Played:
    """Play those that are wanted, by name and log, each in a folder of its own."""
    few, found = asyncio.Semaphore(JOBS), Played()
    async with Launcher(folder, hash_seeds=(0,)) as launcher:

        async def one(name: str, log: str) -> None:
            own = folder / secrets.token_hex(4)
            url = f"sqlite:///{own}/{{}}/log.db?partitions=1"
            if log == "kafka":
                url = f"kafka://{bootstrap}?namespace=o{own.name}{{}}&partitions=1"
            async with few:
                found[name, log] = await _played(launcher, own, url, plays[name], opened)

        await asyncio.gather(*(one(name, log) for name, log in wanted))
    return found


async def _played(
    launcher: Launcher, folder: Path, url: str, play: Play, opened: Opening
) -> BaseException | None:
    found: BaseException | None = None
    for number, deadline in enumerate(DEADLINES):
        try:
            async with opened(launcher, folder / str(number), url.format(number), deadline) as one:
                await play(one)
                await one.holds()
        except TooSlowError as error:
            found = error
        except (Exception, pytest.fail.Exception) as error:
            return error
        else:
            return None
    return found
