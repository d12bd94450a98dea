"""The agents without a graph: the topics that their state is folded from, and an owner of each partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.projection.folder import matching
from noesium_stream.worker.acquiring import Assignment
from noesium_stream.worker.handling import HandlerPartition
from noesium_stream.worker.host import Host
from noesium_stream.worker.sweeping import log_digest, sweep_handler

_PATTERN = "*"
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
        self._folder = agent.context.home / "handlers" / log_digest(log.url) / agent.agent_type

    def _check(self) -> None:
        self._state.check()
        for event in self._state.events:
            self._log.catalogue.register(event)

    def _must_exist(self) -> Sequence[str]:
        namespace = self._log.topology.namespace
        return [f"{namespace}.{topic}" for topic in self._state.topics if _PATTERN not in topic]

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
        """One partition's events are handled while the commit of those before is under way."""
        by_partition: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[TopicPartition(record.topic, record.partition)].append(record)
        # Handed over at once: what is read from elsewhere, or given up, meanwhile is passed over.
        batches = deque(self._owners[place].accept(batch) for place, batch in by_partition.items())
        accepting: list[asyncio.Task[None]] = []
        try:
            while batches:
                accepting.append(asyncio.create_task(batches.popleft()))
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
            await asyncio.gather(*accepting)
        except asyncio.CancelledError:
            for batch in batches:
                batch.close()
            for task in accepting:
                task.cancel()
            raise

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
