"""The process that runs agents: one consumer group per agent type, one owner per assigned partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from noesium_stream.agent import AgentContext, BaseGraphicAgent
from noesium_stream.capability import CapabilityRegistry
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import CommitUnknownError, LogFullError, LogUnavailableError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import AgentRef, TraceContext
from noesium_stream.event.standard import AgentHeartbeat, AgentStarted, AgentStopped, PartitionStatus
from noesium_stream.kernel import graph_ref
from noesium_stream.log.group import this_process
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.worker.acquiring import Assignment
from noesium_stream.worker.grace import GRACE_S
from noesium_stream.worker.health import Health
from noesium_stream.worker.partition import PartitionOwner
from noesium_stream.worker.slots import CONCURRENCY, Slots
from noesium_stream.worker.state import Bounds
from noesium_stream.worker.telling import Telling
from noesium_stream.worker.threads import make_room_for_threads

HEARTBEAT_S: Final = 10.0
PATIENCE_S: Final = 5.0
"""For a sign of life to be written: a worker that ends does not wait for a broker that is gone."""

_OPENING_AT_ONCE: Final = 8


class Worker:
    """Runs agents on a log until it is closed.

    Args:
        log: where their topics are; the worker does not close it.
        agents: agent classes with their options.
        home: folder for what agents keep on this machine.
        progress: takes one line at a time, for people.
        clock: time and ids.
        runtime_id: which installation events say they come from.
        llm_config: how the agents' models sample, and more for their provider (see `AgentConfig`).
        grace_s: for how long effects that are under way are waited for when a partition is given up.
        concurrency: how many runs of each agent work at once; those that only wait do not count.
        bounds: for how long, and how many, ended runs are known, so that a command that comes again is no
            second run.
        keeps_state: whether what it knows of its partitions is kept in files below `home`, for next time;
            None: unless the log is in memory.

    Use it as an async context manager; `wait` raises what ends it.
    """

    def __init__(
        self,
        log: EventLog,
        agents: Sequence[tuple[type[BaseGraphicAgent], Any]],
        *,
        home: Path,
        progress: Callable[[str], None] = lambda line: None,
        clock: Clock | None = None,
        runtime_id: str = "local",
        llm_config: Mapping[str, Any] | None = None,
        grace_s: float = GRACE_S,
        concurrency: int = CONCURRENCY,
        bounds: Bounds | None = None,
        keeps_state: bool | None = None,
    ) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        instance_id = self._clock.uuid7()
        made = partial(
            AgentContext,
            home=home,
            log=log,
            clock=self._clock,
            progress=progress,
            llm_config=llm_config or {},
        )
        self._hosts = [
            _Host(
                log,
                _make(agent, options, made, runtime_id, instance_id),
                grace_s,
                Slots(concurrency),
                bounds or Bounds(),
                not log.url.startswith("memory:") if keeps_state is None else keeps_state,
            )
            for agent, options in agents
        ]
        self._heartbeats: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        make_room_for_threads()
        try:
            for host in self._hosts:
                await host.start()
        except BaseException:
            await self.close()
            raise
        self._heartbeats = [asyncio.create_task(host.heartbeat()) for host in self._hosts]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def health(self) -> Health:
        """Whether it is ready, and what it is at work on."""
        return Health(
            [line for host in self._hosts for line in host.waits_for()],
            {host.agent_type: [status.partition for status in host.partitions()] for host in self._hosts},
        )

    async def wait(self) -> None:
        """Return when the worker is closed; raise what ended it before.

        Raises what a partition's owner, the log or a heartbeat raised.
        """
        tasks = [asyncio.create_task(host.wait()) for host in self._hosts] + self._heartbeats
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()

    async def close(self) -> None:
        """Stop in order: no new work, effects and commits that are under way end, writers close, the group
        hears of it at once.
        """
        for task in self._heartbeats:
            task.cancel()
        await asyncio.gather(*self._heartbeats, return_exceptions=True)
        self._heartbeats = []
        # All at once: they share the time that there is.
        closed = await asyncio.gather(*(host.close() for host in self._hosts), return_exceptions=True)
        for error in closed:
            if isinstance(error, BaseException):
                raise error


class _Host:
    """One agent of the worker: its subscription and the partitions that it owns."""

    def __init__(
        self,
        log: EventLog,
        agent: BaseGraphicAgent,
        grace_s: float,
        slots: Slots,
        bounds: Bounds,
        keeps_state: bool,
    ) -> None:
        self._log = log
        self._slots = slots
        self._bounds = bounds
        self._keeps_state = keeps_state
        self._grace_s = grace_s
        self._telling = Telling(agent.context.progress, agent.context.clock)
        self._agent = agent
        self._context = agent.context
        self._registry = CapabilityRegistry(log, clock=agent.context.clock)
        self._owners: dict[int, PartitionOwner] = {}
        self._subscription: Subscription | None = None
        self._failure: asyncio.Future[None] | None = None
        self._joined: asyncio.Future[Subscription] | None = None
        self.agent_type = agent.agent_type
        self._started = False
        self._answered = True
        self._moved = asyncio.Event()

    async def start(self) -> None:
        agent, log, topology = self._agent, self._log, self._log.topology
        for event in agent.events:
            log.catalogue.register(event)
        self._failure = asyncio.get_running_loop().create_future()
        self._joined = asyncio.get_running_loop().create_future()
        await agent.start()
        self._started = True
        # What cannot be run is said before anybody hears of the agent.
        graph_ref(agent.graph, agent.agent_type, agent.version)
        _ = agent.durable
        inbox, journal = topology.inbox(agent.agent_type), topology.journal(agent.agent_type)
        names = [inbox, journal, topology.registry, topology.dlq, topology.heartbeat]
        await log.ensure_topics([topology.spec(name) for name in names])
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
            [inbox],
            self._handle,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
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
            )
            self._answered = await self._say_if_possible(beat)
            sequence += 1
            # Not `wait_for`: Python 3.11's loses a cancellation that meets what it waits for.
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._moved.wait()

    def partitions(self) -> list[PartitionStatus]:
        """How the partitions stand that this host is at work on."""
        found = []
        for number, owner in sorted(self._owners.items()):
            place = TopicPartition(owner.inbox, number)
            status = owner.status(self._subscription.position(place) if self._subscription else None)
            if status is not None:
                found.append(status)
        return found

    def waits_for(self) -> list[str]:
        """Why it is not ready; empty: it is."""
        if self._subscription is None:
            return [f"{self.agent_type} has not joined its group yet"]
        taking = sorted(number for number, owner in self._owners.items() if owner.status(None) is None)
        why = [f"{self.agent_type} is taking partition {number}" for number in taking]
        return why if self._answered else [*why, f"{self._log.url} does not answer"]

    async def close(self) -> None:
        if self._subscription is not None:
            await self._subscription.close()
            self._subscription = None
            await self._say_if_possible(
                AgentStopped(
                    agent_id=self._context.agent_ref.agent_id,
                    agent_type=self._agent.agent_type,
                    instance_id=self._context.agent_ref.instance_id,
                    reason="closed",
                )
            )
        # What a subscription that failed did not revoke.
        await self._release(list(self._owners))
        self._telling.close()
        if self._started:
            self._started = False
            await self._agent.stop()

    async def _handle(self, records: Sequence[Record]) -> None:
        by_partition: defaultdict[int, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[record.partition].append(record)
        await asyncio.gather(
            *(self._owners[partition].accept(batch) for partition, batch in by_partition.items())
        )

    async def _assigned(self, partitions: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        few = asyncio.Semaphore(_OPENING_AT_ONCE)

        joined = self._joined
        assert joined is not None, "a host starts before it is given partitions"

        async def own(place: TopicPartition) -> tuple[TopicPartition, int | None]:
            owner = PartitionOwner(
                self._log,
                self._agent,
                place.partition,
                self._registry,
                Assignment(place, joined, self._context.clock),
                on_failure=self._failed,
                on_recovered=self._moved.set,
                tell=self._telling.tell,
                grace_s=self._grace_s,
                slots=self._slots,
                bounds=self._bounds,
                keeps_state=self._keeps_state,
            )
            self._owners[place.partition] = owner
            async with few:
                return place, await owner.acquire_or_recover()

        starts = await asyncio.gather(*(own(place) for place in sorted(partitions)))
        self._moved.set()
        return {place: start for place, start in starts if start is not None}

    async def _revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._release([place.partition for place in partitions])
        self._moved.set()

    async def _release(self, partitions: Sequence[int]) -> None:
        owners = [self._owners.pop(partition) for partition in partitions if partition in self._owners]
        await asyncio.gather(*(owner.release() for owner in owners))

    def _failed(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _say_if_possible(self, event: DomainEvent) -> bool:
        """As `_say`; a log that does not answer now is reported, and does not end the worker."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._say(event)
                return True
        except (LogUnavailableError, LogFullError, CommitUnknownError) as error:
            self._context.progress(f"{event.TYPE} was not written: {error.message}")
        except TimeoutError:
            self._context.progress(f"{event.TYPE} was not written: no answer for {PATIENCE_S:.0f} s")
        return False

    async def _say(self, event: DomainEvent) -> None:
        clock = self._context.clock
        trace = TraceContext(clock.token(16), clock.token(8))
        key = self._context.agent_ref.agent_id
        envelope = event.to_envelope(self._context.agent_ref, trace, partition_key=key, clock=clock)
        await self._log.append([envelope])


def _make(
    agent: type[BaseGraphicAgent],
    options: Any,
    made: Callable[..., AgentContext],
    runtime_id: str,
    instance_id: str,
) -> BaseGraphicAgent:
    reference = AgentRef(
        agent_id=agent.agent_type,
        agent_type=agent.agent_type,
        runtime_id=runtime_id,
        instance_id=instance_id,
    )
    return agent(options if options is not None else agent.Options(), made(agent_ref=reference))
