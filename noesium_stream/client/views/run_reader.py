"""Reads the records of one run from the journals of all generations of its agent type.

The run is in one of these journals, and it is not known in which one: so all are read until it is found. The
journals that exist when the reader starts are enough. A run gets into a later one only if its command is
forwarded, and then the newest of these journals has a record of that (`request.forwarded`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from noesium_stream.client.shared.tail import closing, shared_tails
from noesium_stream.event.rules.run_life import ENDINGS
from noesium_stream.event.standard import RequestForwarded
from noesium_stream.log.generations import Generation, generations
from noesium_stream.log.port import EventLog, TopicPartition, Types
from noesium_stream.log.record import Record
from noesium_stream.log.topics import partition_of

if TYPE_CHECKING:
    from noesium_stream.client.views.run_index import RunIndex

_FORWARDED: Final = RequestForwarded.TYPE

Reader = AsyncGenerator[Record, None]


class Since(NamedTuple):
    """Offsets of a generation's journal below which there is no record of the run."""

    generation: Generation
    offsets: Mapping[int, int]


class RunReader:
    """Reads the records of one run, in order, each once.

    Args:
        log: the log that has the run.
        agent_type: agent type of the run.
        run_id: id of the run.
        types: event types to read; None: all.
        since: offsets below which there is no record of the run.
        index: the index on this machine.
    """

    def __init__(
        self,
        log: EventLog,
        agent_type: str,
        run_id: str,
        types: Types,
        since: Since | None,
        index: RunIndex | None,
    ) -> None:
        self._log = log
        self._agent_type = agent_type
        self._run_id = run_id
        self._types = types
        self._since = since
        self._index = index

    async def read(self, *, follow: bool) -> Reader:
        """Yield the records up to the terminal event; without `follow` up to the present end of the log."""
        if self._since is not None and follow:
            # The run is there, or its command was forwarded, which that journal says.
            found = [self._since.generation]
        else:
            found = await generations(self._log, self._agent_type)
        if self._since is not None:
            found = [one for one in found if one.number >= self._since.generation.number]
        seen = 0
        async with aclosing(self._followed(found) if follow else self._there(found)) as records:
            async for record in records:
                number = seen if record.number is None else record.number
                if number < seen:
                    continue  # a repeated record (law 2)
                seen = number + 1
                yield record
                if record.event_type in ENDINGS:
                    return

    async def _there(self, found: Sequence[Generation]) -> Reader:
        for generation in found:
            empty = True
            async with aclosing(self._of(generation, follow=False)) as records:
                async for record in records:
                    empty = False
                    yield record
            if not empty:
                return

    async def _followed(self, found: Sequence[Generation]) -> Reader:
        newest = found[-1]
        readers = [self._of(generation, follow=True, handed_on=generation is newest) for generation in found]
        while True:
            async with _first(readers) as (reader, record):
                if record is None:
                    return
                if record.event_type != _FORWARDED:
                    yield record
                    async for record in reader:
                        if record.event_type != _FORWARDED:
                            yield record
                    return
                newest = self._after(newest, record)
            readers = [self._of(newest, follow=True, handed_on=True)]

    def _after(self, generation: Generation, record: Record) -> Generation:
        topology, number = self._log.topology, generation.number + 1
        return Generation(
            number,
            topology.inbox(self._agent_type, number),
            topology.journal(self._agent_type, number),
            record.unchecked.payload["partitions"],
        )

    async def _of(self, generation: Generation, *, follow: bool, handed_on: bool = False) -> Reader:
        """Yield the records of the run in one journal; with `handed_on` also a forwarding of its command."""
        journal = generation.journal
        partition = partition_of(self._run_id, generation.partitions)
        first = await self._begins(generation, partition)
        types = (*self._types, _FORWARDED) if handed_on and self._types is not None else self._types
        source: AsyncIterator[Record]
        if follow:
            place = TopicPartition(journal, partition)
            source = shared_tails(self._log).follow(self._log, place, self._run_id, first, types)
        else:
            until = {partition: (await self._log.end(journal))[partition]}
            source = self._log.read(
                journal, {partition: first}, until=until, types=types, partitions=(partition,)
            )
        async with closing(source) as records:
            async for record in records:
                if record.key == self._run_id or (handed_on and self._was_handed_on(record)):
                    yield record

    def _was_handed_on(self, record: Record) -> bool:
        return record.event_type == _FORWARDED and record.unchecked.payload["run_id"] == self._run_id

    async def _begins(self, generation: Generation, partition: int) -> int:
        journal = generation.journal
        if self._since is not None and generation.number == self._since.generation.number:
            return self._since.offsets[partition]
        first = (await self._log.beginning(journal))[partition]
        if self._since is not None or self._index is None:
            return first
        return max(first, await self._index.start(journal, self._run_id) or 0)


@asynccontextmanager
async def _first(readers: Sequence[Reader]) -> AsyncIterator[tuple[Reader, Record | None]]:
    """Yield the reader that has a record first, and that record (None: all readers have ended).

    The other readers are closed before, this one afterwards.
    """
    if len(readers) == 1:
        async with aclosing(readers[0]) as reader:
            yield reader, await anext(reader, None)
        return
    tasks = {asyncio.create_task(_next(reader)): reader for reader in readers}
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        chosen = next(task for task in tasks if task in done)
        record = chosen.result()
        await _close({task: reader for task, reader in tasks.items() if task is not chosen})
        yield tasks[chosen], record
    finally:
        await _close(tasks)


async def _next(reader: Reader) -> Record | None:
    async for record in reader:
        return record
    return None


async def _close(tasks: Mapping[asyncio.Task[Record | None], Reader]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for reader in tasks.values():
        await reader.aclose()
