"""Worker processes (`noesium worker`) that can be killed, paused and told to stop; who ends is replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from noesium_stream.cli.exits import UNAVAILABLE
from noesium_stream.log.members import this_process
from tests.chaos.cluster_agents import VARIABLE

ROOT: Final = Path(__file__).parents[2]
AGENTS: Final = tuple(f"tests.chaos.cluster_agents:{name}" for name in ("Caller", "Carrier", "Sums"))
STOPPING_S: Final = 10.0
"""So long a worker that was told to stop may take, while it can run and reach the log; on a machine with more
to do than it has processors, as much longer."""


@dataclass(slots=True)
class Hand:
    """A worker process, at place `place`: its folder, and what stands between it and the broker.

    Attributes:
        told_s: when it was told to stop; None: it was not.
        killed, paused: what was done to it.
        easy: the time that it is given to stop is judged.
    """

    place: int
    process: subprocess.Popen[bytes]
    log_file: Path
    told_s: float | None = None
    killed: bool = False
    paused: bool = False
    easy: bool = True

    @property
    def name(self) -> str:
        """As in groups and in the ledger: `host/pid`."""
        return f"{this_process().rpartition('/')[0]}/{self.process.pid}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def free(self) -> bool:
        """Whether it runs, and nobody has done anything to it."""
        return self.alive and not self.killed and not self.paused and self.told_s is None

    def kill(self) -> None:
        """SIGKILL."""
        self.killed = True
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.paused = False
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM."""
        self.told_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)


class Crew:
    """`size` workers, as long as it watches.

    Args:
        folder: for what they keep and say.
        url: of the log, by the place of a worker.
        say: takes one line.

    Attributes:
        faults: who ended without being asked to, and who did not end as asked.
        begun: how many processes there were.
    """

    def __init__(
        self, folder: Path, url: Callable[[int], str], size: int, say: Callable[[str], None]
    ) -> None:
        self.faults: list[str] = []
        self.hands: list[Hand] = []
        self.size = size
        self.begun = 0
        self.given_up = 0
        self.outside = folder / "outside"
        self._folder = folder / "workers"
        self._folder.mkdir(parents=True)
        self._url = url
        self._say = say
        self._watching: asyncio.Task[None] | None = None

    @property
    def free(self) -> list[Hand]:
        """Those that work undisturbed."""
        return [hand for hand in self.hands if hand.free]

    @property
    def alive(self) -> set[str]:
        """The names of the processes that have not ended; also those that stand still."""
        return {hand.name for hand in self.hands if hand.alive}

    def join(self) -> Hand:
        """Start one more, at the first free place."""
        taken = {hand.place for hand in self.hands if hand.alive}
        place = next(n for n in range(len(taken) + 1) if n not in taken)
        self.begun += 1
        log_file = self._folder / f"{self.begun}.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NOESIUM_")}
        environment |= {"NOESIUM_HOME": str(self._folder / f"home{place}"), VARIABLE: str(self.outside)}
        environment["PYTHONFAULTHANDLER"] = "1"
        command = [sys.executable, "-m", "noesium_stream.cli", "worker", *AGENTS, "--log", self._url(place)]
        with log_file.open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        hand = Hand(place, process, log_file)
        self.hands.append(hand)
        self._say(f"worker {process.pid} joins at place {place} ({log_file.name})")
        return hand

    def watch(self) -> None:
        """From now on replace those who end, so that `size` work."""
        self._watching = asyncio.create_task(self._watch(), name="crew")

    async def end(self) -> None:
        """Tell all to stop, and wait for that."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for hand in self.hands:
            if hand.free:
                hand.stop()
        limit = time.monotonic() + 3 * STOPPING_S * crowded()
        while any(hand.alive for hand in self.hands) and time.monotonic() < limit:
            self._look()
            await asyncio.sleep(0.1)
        self._look()
        self.kill()

    def kill(self) -> None:
        """End all that are left."""
        for hand in self.hands:
            if hand.alive:
                hand.kill()
                hand.process.wait()

    async def _watch(self) -> None:
        while True:
            self._look()
            while len(self.free) < self.size:
                self.join()
            await asyncio.sleep(0.2)

    def _look(self) -> None:
        for hand in list(self.hands):
            code = hand.process.poll()
            if code is None:
                told_s = hand.told_s
                limit_s = STOPPING_S * crowded()
                if told_s is not None and hand.easy and time.monotonic() - told_s > limit_s:
                    hand.easy = False
                    self.faults.append(f"worker: {hand.log_file} has not ended {limit_s:.0f} s after SIGTERM")
                continue
            self.hands.remove(hand)
            self._say(f"worker {hand.process.pid} has ended with {code}")
            if hand.killed:
                continue
            if code == UNAVAILABLE:
                self.given_up += 1  # the log was away for longer than it waits
            elif code != 0 or hand.told_s is None:
                last = hand.log_file.read_text(errors="replace").splitlines()[-3:]
                self.faults.append(f"worker: {hand.log_file} ended with {code}: {' / '.join(last)}")


def crowded() -> float:
    """How many times longer things take here now, at least 1: processes that want to run, by processors."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
