"""Host of a handler: subscribes to the topics that its state is folded from, and owns their partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.log.generations import fitting_spec
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.projection.stored.folder import matching
from noesium_stream.worker.handlers.ahead import HandledAhead, batches_of
from noesium_stream.worker.handlers.tenure import HandlerOwner, HandlerTenure, handler_owner
from noesium_stream.worker.host import Host
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.state.stale_files import log_digest, sweep_handler

_PATTERN = "*"


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
        self._ahead = HandledAhead(self._failed)
        self._folder = agent.context.home / "handlers" / log_digest(log.url) / agent.agent_type

    async def close(self) -> None:
        """See `Host.close`; does not wait any longer for a log that is full or unavailable."""
        self._ahead.stop_waiting()
        try:
            await super().close()
        finally:
            await self._ahead.close()

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
        group = self._subscription

        def tenure_of(place: TopicPartition) -> HandlerTenure | None:
            return self._owners[place].tenure

        def behind(place: TopicPartition) -> int:
            return 0 if group is None else group.behind(place)

        await self._ahead.handle(batches_of(records, tenure_of, behind), self._hurry)

    def _hurry(self) -> None:
        for owner in self._owners.values():
            if owner.tenure is not None:
                owner.tenure.hurry()

    def _owner(self, place: TopicPartition, assignment: Assignment) -> HandlerOwner:
        return handler_owner(
            self._log,
            self._handler,
            place,
            assignment,
            self._folder,
            on_failure=self._failed,
            on_change=self._moved.set,
            on_taken=self._taken.append,
        )
