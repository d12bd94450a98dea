"""An agent in a worker's process: a member of its consumer group, with an owner per assigned partition."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from noesium_stream.agent import BaseAgent
from noesium_stream.capability import CapabilityRegistry
from noesium_stream.errors import CommitUnknownError, LogFullError, LogUnavailableError, TopicNotFoundError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import TraceContext
from noesium_stream.event.standard import AgentHeartbeat, AgentStarted, AgentStopped, PartitionStatus
from noesium_stream.log.group import this_process
from noesium_stream.log.port import EventLog, Subscription, TopicPartition, Types
from noesium_stream.log.record import Record
from noesium_stream.worker.acquiring import Assignment
from noesium_stream.worker.telling import Telling

_T = TypeVar("_T")

HEARTBEAT_S: Final = 10.0
PATIENCE_S: Final = 5.0
"""For a sign of life to be written: a worker that ends does not wait for a broker that is gone."""

FAREWELL_S: Final = 2.0
"""For the last sign of life of a worker that ends: its group has been told by then."""

STOPPING: Final = "ending what it has open (stop)"
"""What a host is doing that closes, and waits for its agent."""

_OPENING_AT_ONCE: Final = 8


class Owner(Protocol):
    """Owns one partition, from `acquire_or_recover` to `release`."""

    @property
    def open_runs(self) -> int:
        """How many runs of the partition are open."""

    def status(self, handled: int | None) -> PartitionStatus | None:
        """How the partition stands; None: it is being taken, or given up.

        Args:
            handled: where the group's reader stands in the partition, if it reads it.
        """

    async def acquire_or_recover(self) -> int | None:
        """Take the partition; return the next offset to accept, or None where that is not known yet."""

    async def accept(self, records: Sequence[Record]) -> None:
        """Deal with the next records; returns when all are dealt with on the log, or kept for later."""

    async def release(self) -> None:
        """Give the partition up, in order."""


class Host(ABC):
    """One agent of a worker: its subscription and the partitions that it owns."""

    _types: Types = None

    @abstractmethod
    def _check(self) -> None:
        """Raise what is wrong with the agent, before anybody hears of it."""

    @abstractmethod
    async def _make_topics(self) -> None:
        """Make its own topics, and those that it reads by name, where they are missing."""

    def _versions(self) -> list[str] | None:
        """The graphs that it carries; None: it has none."""
        return None

    @abstractmethod
    async def _topics(self) -> Sequence[str]:
        """The topics that it reads."""

    def _sweep(self, ids: Mapping[str, str]) -> int:
        """Remove states of topics that are gone, of all that the log has (ids by name); return how many."""
        return 0

    async def _follow(self, subscription: Subscription) -> None:
        """Read topics that are new, where it reads by pattern; asked at each sign of life."""
        return

    @abstractmethod
    def _owner(self, place: TopicPartition, assignment: Assignment) -> Owner:
        """Who is to own a partition."""

    def __init__(self, log: EventLog, agent: BaseAgent, also: Sequence[BaseAgent] = ()) -> None:
        self._log = log
        self._telling = Telling(agent.context.progress, agent.context.clock)
        self._agent = agent
        self._agents = (agent, *also)
        self._context = agent.context
        self._registry = CapabilityRegistry(log, clock=agent.context.clock)
        self._owners: dict[TopicPartition, Owner] = {}
        self._subscription: Subscription | None = None
        self._failure: asyncio.Future[None] | None = None
        self._joined: asyncio.Future[Subscription] | None = None
        self.agent_type = agent.agent_type
        self._started: list[BaseAgent] = []
        self._answered = True
        self.leaving = ""
        self._moved = asyncio.Event()

    async def start(self) -> None:
        """Make the topics, tell the others, and join the group.

        Raises what is wrong with the agent or its topics.
        """
        agent, log, topology = self._agent, self._log, self._log.topology
        for one in self._agents:
            for event in one.events:
                log.catalogue.register(event)
        self._failure = asyncio.get_running_loop().create_future()
        self._joined = asyncio.get_running_loop().create_future()
        for one in self._agents:
            await one.start()
            self._started.append(one)
        # What cannot be run is said before anybody hears of the agent.
        self._check()
        names = [topology.registry, topology.dlq, topology.heartbeat]
        await log.ensure_topics([topology.spec(name) for name in names])
        await self._make_topics()
        swept = self._sweep({name: shape.topic_id for name, shape in (await log.layout()).items()})
        if swept:
            self._context.progress(f"{agent.agent_type}: {swept} states of topics that are gone were removed")
        for capability in agent.capabilities:
            await self._registry.register(self._context.agent_ref, capability)
        await self._say(
            AgentStarted(
                agent_id=self._context.agent_ref.agent_id,
                agent_type=agent.agent_type,
                agent_version=agent.version,
                instance_id=self._context.agent_ref.instance_id,
                capabilities=[capability.id for capability in agent.capabilities],
            )
        )
        self._subscription = await log.subscribe(
            topology.workers(agent.agent_type),
            await self._topics(),
            self._handle,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            types=self._types,
        )
        self._joined.set_result(self._subscription)

    async def wait(self) -> None:
        """Raise what ended the host; return when it was closed."""
        if self._subscription is None or self._failure is None:
            return
        closed = asyncio.ensure_future(self._subscription.wait())
        try:
            await asyncio.wait([closed, self._failure], return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            closed.result()
        finally:
            closed.cancel()

    async def heartbeat(self) -> None:
        """Give signs of life for ever: now and then, and when partitions have come or gone."""
        reference, sequence = self._context.agent_ref, 0
        while True:
            self._moved.clear()
            beat = AgentHeartbeat(
                agent_id=reference.agent_id,
                agent_type=reference.agent_type,
                instance_id=reference.instance_id,
                sequence=sequence,
                open_runs=sum(owner.open_runs for owner in self._owners.values()),
                interval_ms=round(HEARTBEAT_S * 1000),
                process=this_process(),
                partitions=self.partitions(),
                versions=self._versions(),
            )
            self._answered = await self._say_if_possible(beat)
            sequence += 1
            await self._follow_if_possible()
            # Not `wait_for`: Python 3.11's loses a cancellation that meets what it waits for.
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._moved.wait()

    async def _follow_if_possible(self) -> None:
        if self._subscription is None:
            return
        with suppress(LogUnavailableError, TopicNotFoundError):  # the next sign of life comes soon
            await self._follow(self._subscription)

    def partitions(self) -> list[PartitionStatus]:
        """How the partitions stand that this host is at work on."""
        found = []
        for place, owner in sorted(self._owners.items()):
            status = owner.status(self._subscription.position(place) if self._subscription else None)
            if status is not None:
                found.append(status)
        return found

    def waits_for(self) -> list[str]:
        """Why it is not ready; empty: it is."""
        if self._subscription is None:
            return [f"{self.agent_type} has not joined its group yet"]
        taking = sorted(place for place, owner in self._owners.items() if owner.status(None) is None)
        why = [f"{self.agent_type} is taking partition {place.partition}" for place in taking]
        return why if self._answered else [*why, f"{self._log.url} does not answer"]

    async def close(self) -> None:
        """Leave the group: every partition is given up in order."""
        if self._subscription is not None:
            self.leaving = f"giving up its partitions on {self._log.url}"
            await self._subscription.close()
            self._subscription = None
            await self._say_if_possible(
                AgentStopped(
                    agent_id=self._context.agent_ref.agent_id,
                    agent_type=self._agent.agent_type,
                    instance_id=self._context.agent_ref.instance_id,
                    reason="closed",
                ),
                FAREWELL_S,
            )
        # What a subscription that failed did not revoke.
        await self._release(list(self._owners))
        self._telling.close()
        while self._started:
            self.leaving = STOPPING
            await self._started.pop().stop()
        self.leaving = ""

    async def _handle(self, records: Sequence[Record]) -> None:
        by_partition: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[TopicPartition(record.topic, record.partition)].append(record)
        await asyncio.gather(*(self._owners[place].accept(batch) for place, batch in by_partition.items()))

    async def _assigned(self, partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        few = asyncio.Semaphore(_OPENING_AT_ONCE)

        joined = self._joined
        assert joined is not None, "a host starts before it is given partitions"

        async def own(place: TopicPartition) -> tuple[TopicPartition, int | None]:
            owner = self._owner(place, Assignment(place, joined, self._context.clock))
            self._owners[place] = owner
            async with few:
                return place, await owner.acquire_or_recover()

        starts = await _all(own(place) for place in sorted(partitions))
        self._moved.set()
        return {place: start for place, start in starts if start is not None}

    async def _revoked(self, partitions: frozenset[TopicPartition]) -> None:
        try:
            await self._release(partitions)
        except Exception as error:
            if self.leaving:  # nobody waits for what the subscription raises any more
                self._context.progress(f"{self.agent_type}: a partition was not given up in order: {error}")
            raise
        self._moved.set()

    async def _release(self, places: Iterable[TopicPartition]) -> None:
        owners = [self._owners.pop(place) for place in places if place in self._owners]
        await _all(owner.release() for owner in owners)

    def _failed(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _say_if_possible(self, event: DomainEvent, patience_s: float = PATIENCE_S) -> bool:
        """As `_say`; a log that does not answer now is reported, and does not end the worker."""
        try:
            async with asyncio.timeout(patience_s):
                await self._say(event)
                return True
        except (LogUnavailableError, LogFullError, CommitUnknownError) as error:
            self._context.progress(f"{event.TYPE} was not written: {error.message}")
        except TimeoutError:
            self._context.progress(f"{event.TYPE} was not written: no answer for {patience_s:.0f} s")
        return False

    async def _say(self, event: DomainEvent) -> None:
        clock = self._context.clock
        trace = TraceContext(clock.token(16), clock.token(8))
        key = self._context.agent_ref.agent_id
        envelope = event.to_envelope(self._context.agent_ref, trace, partition_key=key, clock=clock)
        await self._log.append([envelope])


async def _all(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    """What all return; where some fail, the first error, once none is under way any more."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    returned = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        returned.append(result)
    return returned
