"""Whom a fault strikes."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.cluster_crew import Hand
from tests.chaos.cluster_faults import Scene, zombie


class _OneRound(Scene):
    async def wait(self, at_least_s: float, at_most_s: float) -> None:
        crew: Any = self.crew
        await crew.both.wait()
        raise TimeoutError


class _Crew:
    """Five that work where three would do: in each round one stands still, and one is told to end."""

    size = 3

    def __init__(self) -> None:
        self.by_signal: dict[signal.Signals, int] = {}
        self.both = asyncio.Event()
        self.hands = [Hand(place, self._process(place), Path()) for place in range(5)]

    def _process(self, pid: int) -> Any:
        def send_signal(which: signal.Signals) -> None:
            self.by_signal[which] = pid
            if self.by_signal.keys() == {signal.SIGSTOP, signal.SIGTERM}:
                self.both.set()

        return SimpleNamespace(pid=pid, poll=lambda: None, send_signal=send_signal)

    @property
    def free(self) -> list[Hand]:
        return [hand for hand in self.hands if hand.free]


@pytest.mark.parametrize("seed", range(20))
async def test_who_stands_still_is_not_told_to_end(seed: int) -> None:
    cluster: Any = None
    crew: Any = _Crew()
    scene = _OneRound(cluster, crew, [], random.Random(seed), time.monotonic() + 60, lambda line: None)
    with pytest.raises(TimeoutError):
        await zombie(scene)
    assert crew.by_signal[signal.SIGSTOP] != crew.by_signal[signal.SIGTERM]
