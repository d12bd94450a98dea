"""A small tenant beside one with thousands of commands that wait: how long its own wait.

Both ask one worker for runs of the same agent. The small one asks for one after the other, first alone, then
beside the large one, of which so many commands wait in the worker's queue all the time: what has begun is
replaced between two commands of the small one. A command has waited when its run has started; how long it
takes to the first step of the run is told beside it, which is work as well.
"""

from __future__ import annotations

import secrets
import sys
import time

from noesium_stream.log.port import EventLog
from tests.bench.harness import Figure, Side, percentile, progress
from tests.bench.place import kafka_log
from tests.bench.worker_place import Seen, WorkerProcess, commands, working
from tests.bench.worker_settings import WorkerSettings
from tests.support.kafka import KafkaServer

BESIDE, ALONE = "beside the large one", "alone"
BEGUN, STEPPED = "run.started", "kernel.node.completed"
_AGENT = "pair"
_BATCH = 250
_AHEAD = 2_000
"""The large tenant asks for so many more than are to wait, and again when half of them have begun."""


async def measure_fairness(settings: WorkerSettings, kafka: KafkaServer) -> list[Figure]:
    """Milliseconds from appending a command to the start of its run on the log, and to its first step."""
    progress(
        f"fairness: {settings.asked} commands, one after the other, beside {settings.queued:,} that wait"
    )
    alone, beside = _Waits(ALONE), _Waits(BESIDE)
    for number in range(settings.repetitions):
        async with kafka_log(kafka) as log:
            home = settings.folder / f"fairness-{secrets.token_hex(4)}"
            async with working(log, _AGENT, home) as process, Seen(log, _AGENT, (BEGUN, STEPPED)) as seen:
                large = _Large(log, seen, process, settings.queued)
                await _Waits("warm-up").measure(log, seen, max(1, settings.asked // 5))
                await alone.measure(log, seen, settings.asked)
                await large.queue()
                await beside.measure(log, seen, settings.asked, large)
        progress(
            f"  {number + 1}/{settings.repetitions}: alone {alone.last(BEGUN):.1f} ms, "
            f"beside {beside.last(BEGUN):.1f} ms, at least {large.least:,} waited"
        )
        if large.least < settings.queued:
            raise RuntimeError(f"only {large.least:,} commands of the large tenant waited")
    return _figures(beside, alone, settings)


class _Large:
    """The tenant of which so many commands wait in the worker's queue, and never less while others ask.

    `least`: how many waited when the fewest did, after a command of the small tenant.
    """

    def __init__(self, log: EventLog, seen: Seen, process: WorkerProcess, queued: int) -> None:
        self.least = sys.maxsize
        self._log = log
        self._seen = seen
        self._process = process
        self._queued = queued
        self._asked = 0
        self._before = 0

    @property
    def _waiting(self) -> int:
        return self._asked - (self._seen.counts.get(BEGUN, 0) - self._before)

    async def queue(self) -> None:
        """Let them wait: return when they are in the worker's queue."""
        if not self._asked:
            self._before = self._seen.counts.get(BEGUN, 0)
        while self._waiting < self._queued + _AHEAD:
            some = commands(_AGENT, [{"n": n} for n in range(_BATCH)], "large")
            await self._log.append(some)
            self._asked += len(some)
        await self._process.stands(waiting=[self._queued])

    async def hold(self) -> None:
        """More of them, if those that wait have become few."""
        self.least = min(self.least, self._waiting)
        if self._waiting < self._queued + _AHEAD // 2:
            await self.queue()


class _Waits:
    """How long commands waited, in ms, by repetition and what ended the wait."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.ms: list[dict[str, list[float]]] = []

    async def measure(self, log: EventLog, seen: Seen, count: int, beside: _Large | None = None) -> None:
        """Send commands one after the other, each when the first step of the one before is there."""
        found: dict[str, list[float]] = {BEGUN: [], STEPPED: []}
        for number in range(count):
            [command] = commands(_AGENT, [{"n": number}], "small")
            run_id = command.partition_key or ""
            at = time.monotonic()
            await log.append([command])
            await seen.until(lambda: (STEPPED, run_id) in seen.at_s)  # noqa: B023
            for event, waits in found.items():
                waits.append((seen.at_s[event, run_id] - at) * 1e3)
            if beside is not None:
                await beside.hold()
        self.ms.append(found)

    def last(self, event: str) -> float:
        """The 95th percentile of the last repetition."""
        return percentile(self.ms[-1][event], 0.95)

    def side(self, event: str, share: float) -> Side:
        return Side(self.label, [percentile(found[event], share) for found in self.ms])


def _figures(beside: _Waits, alone: _Waits, settings: WorkerSettings) -> list[Figure]:
    name = f"wait of a small tenant beside {settings.queued:,} commands"

    def figure(event: str, share: float, target: float | None = None, note: str = "") -> Figure:
        sides = beside.side(event, share), alone.side(event, share)
        what = "first step" if event == STEPPED else "start"
        title = f"{name}, {what}, p{share * 100:.0f}"
        return Figure("fairness", title, "ms", *sides, target, at_least=False, note=note)

    begun = "From appending a command to its `run.started` read from the journal; 200 runs work at once."
    stepped = "From appending a command to the first step of its run read from the journal."
    return [
        figure(BEGUN, 0.95, 5.0, begun),
        figure(BEGUN, 0.5),
        figure(STEPPED, 0.95, None, stepped),
        figure(STEPPED, 0.5),
    ]
