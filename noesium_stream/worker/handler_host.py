"""Host of a handler: subscribes to the topics that its state is folded from, and owns their partitions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.log.generations import fitting_spec
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.record import Record, bytes_of
from noesium_stream.projection.stored.folder import matching
from noesium_stream.worker.handlers.tenure import HandlerOwner, HandlerTenure, handler_owner
from noesium_stream.worker.host import Host
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.state.stale_files import log_digest, sweep_handler

_PATTERN = "*"
MANY: Final = 500
"""Number of unread records from which on a commit waits for more of them."""

MOST_EVENTS: Final = 20_000
"""Most events handled and not committed, over all partitions; above it no further event is handled."""

MOST_BYTES: Final = 16_000_000
"""Most bytes of records handled and not committed, over all partitions."""

_TURNS: Final = 3
"""Turns of the event loop from the handling of a batch until its commit is under way."""


class HandlerHost(Host):
    """Runs one handler.

    Args:
        log: an open log.
        agent: the handler.

    Raises:
        ConfigError: the handler's declarations are invalid.
    """

    def __init__(self, log: EventLog, agent: BaseHandler) -> None:
        super().__init__(log, agent)
        agent.check()
        self._handler = agent
        self._state = type(agent).state()
        # A journal is folded record by record: its sequence numbers show whether a record is missing.
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
        """See `Host.close`; does not wait any longer for a log that is full or unavailable."""
        self._closing = True
        self._eased.set()
        try:
            await super().close()
        finally:
            for task in self._accepting:  # their partitions are given up and accept nothing
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
        own = self._log.topology.journal(self.agent_type)  # handling its own records would never end
        self._read = [topic for topic in topics if topic != own]
        return self._read

    async def _follow(self, subscription: Subscription) -> None:
        before = self._read
        if await self._topics() != before:
            subscription.change_topics(self._read)

    async def _handle(self, records: Sequence[Record]) -> None:
        """Handle events; return while their commits are under way, unless too many are.

        The group's offsets are ahead of the log by these events. They are advice only: no partition starts
        from them.
        """
        # Handed over at once: a tenure that has ended by then ignores its records.
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
                    if owner.tenure is not None:
                        owner.tenure.hurry()
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
        """Make the call for each partition's tenure, with its number of events and bytes."""
        by_partition: dict[TopicPartition, list[Record]] = {}
        topic, partition, batch = "", -1, list[Record]()
        for record in records:
            if record.partition != partition or record.topic != topic:
                topic, partition = place = TopicPartition(record.topic, record.partition)
                batch = by_partition.setdefault(place, [])
            batch.append(record)
        group, calls = self._subscription, []
        for place, batch in by_partition.items():
            tenure: HandlerTenure | None = self._owners[place].tenure
            if tenure is None:
                continue  # the next tenure reads these records again
            more = group is not None and group.behind(place) >= MANY
            size = bytes_of(batch)
            calls.append((tenure.accept(batch, more=more), (len(batch), size)))
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

    def _owner(self, place: TopicPartition, assignment: Assignment) -> HandlerOwner:
        return handler_owner(
            self._log,
            self._handler,
            place,
            assignment,
            self._folder,
            on_failure=self._failed,
            on_taken=self._moved.set,
        )
