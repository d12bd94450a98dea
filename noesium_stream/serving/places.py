"""Where the records of runs begin, by their ids: what a server has read of the log, and may forget.

A journal is not indexed by run. Without this each request would read a partition from its beginning; so a
request reads what is new since the last one, and that of its run. A server that starts reads the commands of
all runs once, when they are first asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from noesium_stream.client.shared.tail import closing
from noesium_stream.client.views.run_reader import Since
from noesium_stream.event.rules.agent_calls import COMMANDS
from noesium_stream.log.generations import Generation, generations
from noesium_stream.log.port import EventLog, Position
from noesium_stream.log.topics import partition_of

MOST_RUNS: Final = 500_000
"""Runs of one agent type whose places are kept; the oldest are forgotten, and looked for again."""


class Place(NamedTuple):
    """Where a run is.

    Attributes:
        since: offsets below which its journal has nothing of it; None: not known.
        command: its first command in an inbox; None: there is none.
    """

    since: Since | None
    command: Position | None


@dataclass(slots=True)
class _Known:
    """What was read of one agent type's topics: next offsets, and the first record of each run."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    cursors: dict[str, dict[int, int]] = field(default_factory=dict)
    journal: dict[str, tuple[Generation, int, int]] = field(default_factory=dict)
    inbox: dict[str, Position] = field(default_factory=dict)
    forgot: bool = False


class Places:
    """The places of the runs on a log."""

    def __init__(self, log: EventLog, most: int = MOST_RUNS) -> None:
        self._log = log
        self._most = most
        self._known: dict[str, _Known] = {}

    async def find(self, agent_type: str, run_id: str) -> Place:
        """Read what is new on the log, and return where a run is.

        Raises:
            LogUnavailableError
        """
        known = self._known.setdefault(agent_type, _Known())
        async with known.lock:
            found = await generations(self._log, agent_type)
            for generation in found:
                # First the journal: a command that is taken meanwhile lies behind what was read there.
                await self._read(known, generation, generation.journal)
                await self._read(known, generation, generation.inbox)
            return Place(_since(known, found, run_id), known.inbox.get(run_id))

    async def _read(self, known: _Known, generation: Generation, topic: str) -> None:
        until = await self._log.end(topic)
        cursor = known.cursors.get(topic)
        if cursor is None:
            cursor = known.cursors[topic] = await self._log.beginning(topic)
        if all(cursor.get(partition, 0) >= end for partition, end in until.items()):
            return
        async with closing(self._log.read(topic, dict(cursor), until=until, types=COMMANDS)) as records:
            async for record in records:
                if topic == generation.journal:
                    known.journal.setdefault(record.key, (generation, record.partition, record.offset))
                    known.inbox.pop(record.key, None)
                elif record.key not in known.journal:
                    place = Position(record.topic, record.partition, record.offset)
                    known.inbox.setdefault(record.key, place)
        known.cursors[topic] = {**cursor, **until}
        for runs in (known.journal, known.inbox):
            while len(runs) > self._most:
                del runs[next(iter(runs))]
                known.forgot = True


def _since(known: _Known, found: Sequence[Generation], run_id: str) -> Since | None:
    first = known.journal.get(run_id)
    if first is not None:
        generation, partition, offset = first
        return Since(generation, {partition: offset})
    if known.forgot or len(found) != 1:
        return None
    [generation] = found
    partition = partition_of(run_id, generation.partitions)
    return Since(generation, {partition: known.cursors[generation.journal][partition]})
