"""The agents without a graph: the topics that their state is folded from, and an owner of each partition."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final, cast

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.log.generations import fitting_spec
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.record import Record, bytes_of
from noesium_stream.projection.folder import matching
from noesium_stream.worker.acquiring import Assignment
from noesium_stream.worker.handling import HandlerPartition
from noesium_stream.worker.host import Host
from noesium_stream.worker.sweeping import log_digest, sweep_handler

_PATTERN = "*"
MANY: Final = 500
"""Records that are there to be read: a commit waits for so many more."""

MOST_EVENTS: Final = 20_000
"""Not on the log yet, of all partitions together: with more than that nothing is handled."""

MOST_BYTES: Final = 16_000_000
"""The same, by the size of the records."""

_TURNS: Final = 3
"""Of the event loop, from the handling of a batch to its commit being under way."""


class HandlerHost(Host):
    """Runs one handler.

    Args:
        log: an open log.
        agent: the handler.

    Raises:
        ConfigError: what the handler declares cannot be.
    """

    def __init__(self, log: EventLog, agent: BaseHandler) -> None:
        super().__init__(log, agent)
        agent.check()
        self._handler = agent
        self._state = type(agent).state()
        # A journal is folded record by record: its numbers tell whether one is missing.
        if not any(topic.startswith("agent.") or topic.startswith(_PATTERN) for topic in self._state.topics):
            self._types = self._state.event_types
        self._read: Sequence[str] = ()
        self._accepting: dict[asyncio.Task[None], tuple[int, int]] = {}
        self._events = 0
        self._bytes = 0
        self._broken: BaseException | None = None
        self._closing = False
        self._eased = asyncio.Event()
        self._folder = agent.context.home / "handlers" / log_digest(log.url) / agent.agent_type

    async def close(self) -> None:
        """See `Host.close`; a log that is full or away is waited for no more."""
        self._closing = True
        self._eased.set()
        try:
            await super().close()
        finally:
            for task in self._accepting:  # of partitions that are given up: they accept nothing
                task.cancel()
            await asyncio.gather(*self._accepting, return_exceptions=True)

    def _check(self) -> None:
        self._state.check()
        for event in self._state.events:
            self._log.catalogue.register(event)

    async def _make_topics(self) -> None:
        topology = self._log.topology
        read = [f"{topology.namespace}.{topic}" for topic in self._state.topics if _PATTERN not in topic]
        names, layout = [topology.journal(self.agent_type), *read], await self._log.layout()
        await self._log.ensure_topics([fitting_spec(topology, layout, name) for name in names])

    def _sweep(self, ids: Mapping[str, str]) -> int:
        return sweep_handler(self._folder, ids, self._context.clock.now_ms())

    async def _topics(self) -> Sequence[str]:
        topics = matching(await self._log.layout(), self._state, self._log.topology)
        own = self._log.topology.journal(self.agent_type)  # what it says of itself would never end
        self._read = [topic for topic in topics if topic != own]
        return self._read

    async def _follow(self, subscription: Subscription) -> None:
        before = self._read
        if await self._topics() != before:
            subscription.change_topics(self._read)

    async def _handle(self, records: Sequence[Record]) -> None:
        """Let events be handled; returns while their commits are under way, unless those are too many.

        The group's offsets are ahead of the log by those; they are advice, and no partition begins there.
        """
        # Handed over at once: what is read from elsewhere, or given up, meanwhile is passed over.
        batches = deque(self._batches(records))
        try:
            while batches:
                call, size = batches.popleft()
                task = asyncio.create_task(call)
                self._accepting[task] = size
                self._bytes += size[1]
                self._events += size[0]
                task.add_done_callback(self._accepted)
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            while self._is_full() and self._broken is None and not self._closing:
                self._eased.clear()
                for owner in self._owners.values():
                    cast(HandlerPartition, owner).hurry()
                await self._eased.wait()
        except asyncio.CancelledError:
            for call, _ in batches:
                call.close()
            for task in self._accepting:
                task.cancel()
            raise
        if self._broken is not None:
            raise self._broken

    def _batches(self, records: Sequence[Record]) -> list[tuple[Coroutine[Any, Any, None], tuple[int, int]]]:
        """What each partition's owner is to do, and how many events and bytes that are."""
        by_partition: dict[TopicPartition, list[Record]] = {}
        topic, partition, batch = "", -1, list[Record]()
        for record in records:
            if record.partition != partition or record.topic != topic:
                topic, partition = place = TopicPartition(record.topic, record.partition)
                batch = by_partition.setdefault(place, [])
            batch.append(record)
        group, calls = self._subscription, []
        for place, batch in by_partition.items():
            owner = cast(HandlerPartition, self._owners[place])
            more = group is not None and group.behind(place) >= MANY
            size = bytes_of(batch)
            calls.append((owner.accept(batch, more=more), (len(batch), size)))
        return calls

    def _is_full(self) -> bool:
        return self._events > MOST_EVENTS or self._bytes > MOST_BYTES

    def _accepted(self, task: asyncio.Task[None]) -> None:
        events, size = self._accepting.pop(task)
        self._events -= events
        self._bytes -= size
        self._eased.set()
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and self._broken is None:
            self._broken = error
            self._failed(error)

    def _owner(self, place: TopicPartition, assignment: Assignment) -> HandlerPartition:
        return HandlerPartition(
            self._log,
            self._handler,
            place,
            assignment,
            self._folder,
            on_failure=self._failed,
            on_recovered=self._moved.set,
        )
