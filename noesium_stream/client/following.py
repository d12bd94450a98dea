"""The records of one run, wherever they lie: an agent type that has grown has several journals.

A run lies in one of them, and nobody says in which: so all are looked at, until it shows. Those that there
are when the reader begins are enough: into a later one a run gets by its command being handed on, which the
newest of them says (`request.forwarded`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, NamedTuple

from noesium_stream.client.indexed import RunIndex
from noesium_stream.client.runs import ENDED
from noesium_stream.event.standard import RequestForwarded
from noesium_stream.log.generations import Generation, generations
from noesium_stream.log.headers import SEQUENCE
from noesium_stream.log.port import EventLog, Types
from noesium_stream.log.record import Record
from noesium_stream.log.topics import generation_of, partition_of

_FORWARDED: Final = RequestForwarded.TYPE

Reader = AsyncGenerator[Record, None]


class Since(NamedTuple):
    """Where a run cannot have begun before: offsets of a generation's journal."""

    generation: Generation
    offsets: Mapping[int, int]


class RunReader:
    """Reads the records of one run, in order, once each.

    Args:
        log: where it is.
        agent_type: whose run.
        run_id: its id.
        types: what is wanted; None: all.
        since: where it cannot have begun before.
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
        """Yield the records; ends behind its outcome, or without `follow` with what is there."""
        found = await generations(self._log, self._agent_type)
        if self._since is not None:
            found = [one for one in found if one.number >= self._since.generation.number]
        seen = 0
        async with aclosing(self._followed(found) if follow else self._there(found)) as records:
            async for record in records:
                number = int(record.header(SEQUENCE) or seen)
                if number < seen:
                    continue  # a repeated record (law 2)
                seen = number + 1
                yield record
                if record.event_type in ENDED:
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
        """What one journal has of the run; with `handed_on`, that its command was."""
        journal = generation.journal
        ends = await self._log.end(journal)
        partition = partition_of(self._run_id, len(ends))
        first = await self._begins(journal, partition)
        until = None if follow else {partition: ends[partition]}
        types = (*self._types, _FORWARDED) if handed_on and self._types is not None else self._types
        source = self._log.read(
            journal, {partition: first}, until=until, types=types, partitions=(partition,)
        )
        async with closing(source) as records:
            async for record in records:
                if record.key == self._run_id or (handed_on and self._was_handed_on(record)):
                    yield record

    def _was_handed_on(self, record: Record) -> bool:
        return record.event_type == _FORWARDED and record.unchecked.payload["run_id"] == self._run_id

    async def _begins(self, journal: str, partition: int) -> int:
        if self._since is not None and generation_of(journal) == self._since.generation.number:
            return self._since.offsets[partition]
        first = (await self._log.beginning(journal))[partition]
        if self._since is not None or self._index is None:
            return first
        return max(first, await self._index.start(journal, self._run_id) or 0)


@asynccontextmanager
async def _first(readers: Sequence[Reader]) -> AsyncIterator[tuple[Reader, Record | None]]:
    """The reader that has a record first (None: it ends), and that one; all are closed behind it, the others
    before.
    """
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


@asynccontextmanager
async def closing(source: AsyncIterator[Record]) -> AsyncIterator[AsyncIterator[Record]]:
    """Close a reader that is left early: it holds a consumer, which must not wait for the collector."""
    try:
        yield source
    finally:
        if isinstance(source, AsyncGenerator):
            await source.aclose()
