"""Reads all journals of a simulated world live."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from noesium_stream.log.embedded.log import EmbeddedLog
from tests.sim.loop import here
from tests.support.watching import Watch

if TYPE_CHECKING:
    from tests.sim.play import Stage


class Reader:
    """What people see."""

    def __init__(self, stage: Stage, chance: Random) -> None:
        self.watch = Watch(chance.randrange(1, 120))
        self._stage = stage
        self._read_too = set(stage.plan.kinds)
        self._steps = Counter[str]()
        self._waiting: dict[str, tuple[int, asyncio.Future[None]]] = {}

    def begin(self) -> None:
        """Begin to read."""
        lane = self._stage.lane("reader")
        log = self._stage.log_to_look_at(self._stage.link(lane, {}))
        for kind in self._stage.plan.kinds:
            lane.spawn(self._read(log, kind, 1), f"read {kind}")

    async def until(self, run_id: str, steps: int) -> None:
        """Return when so many steps of a run are done, or it has ended."""
        if self._steps[run_id] < steps and run_id not in self.watch.ended:
            reached = asyncio.get_running_loop().create_future()
            self._waiting[run_id] = steps, reached
            await reached

    async def _read(self, log: EmbeddedLog, kind: str, generation: int) -> None:
        topic, name = log.topology.journal(kind, generation), _name(kind, generation)
        if generation == 1:
            await log.ensure_topics([log.topology.spec(topic)])
        async for batch in log.read_batches(topic, {}):
            for record in batch:
                self.watch.take(kind, record, name)
                if record.event_type == "kernel.node.completed":
                    self._steps[record.key] += 1
                steps, reached = self._waiting.get(record.key, (0, None))
                over = self._steps[record.key] >= steps or record.key in self.watch.ended
                if reached is not None and over and not reached.done():
                    reached.set_result(None)
                later = _name(kind, generation + 1)
                if record.event_type == "partition.outgrown" and later not in self._read_too:
                    self._read_too.add(later)
                    here().spawn(self._read(log, kind, generation + 1), f"read {later}")


def _name(kind: str, generation: int) -> str:
    return kind if generation == 1 else f"{kind}.g{generation}"
