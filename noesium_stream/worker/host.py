"""Host of one agent in a worker: a consumer-group member with an owner for each assigned partition."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from noesium_stream.agent import AgentContext, BaseAgent
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.capabilities.snapshot import SNAPSHOTS
from noesium_stream.errors import (
    CommitUnknownError,
    EventStoreError,
    LogFullError,
    LogUnavailableError,
    TopicNotFoundError,
    brief,
)
from noesium_stream.event.domain_event import DomainEvent, root_event
from noesium_stream.event.standard import AgentHeartbeat, AgentStarted, AgentStopped, PartitionStatus
from noesium_stream.log.members import this_process
from noesium_stream.log.port import EventLog, Subscription, TopicPartition, Types
from noesium_stream.log.record import Record
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.failure_lines import WIDTH, FailureLines
from noesium_stream.worker.own_tools import OwnTools
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.ownership.member_marks import MemberMark
from noesium_stream.worker.ownership.owner import PartitionOwner
from noesium_stream.worker.ownership.takeovers import takeover_lines
from noesium_stream.worker.progress_lines import LOG_ANSWERS, STILL_ANSWERS, waiting_for

_T = TypeVar("_T")

HEARTBEAT_S: Final = 10.0
PATIENCE_S: Final = 5.0
"""How long to wait until a heartbeat is written, in seconds; the broker may be unavailable."""

FAREWELL_S: Final = 2.0
"""How long an ending worker waits until `agent.stopped` is written; it has left its group by then."""

STOPPING: Final = "ending what it has open (stop)"
"""Activity of a closing host that waits for its agent's `stop`, for people."""

_OPENING_AT_ONCE: Final = 8


class Host(ABC):
    """One agent of a worker: its subscription and the owners of its partitions."""

    _types: Types = None

    @abstractmethod
    def _check(self) -> None:
        """Check the agent before it is announced; raise the error of an invalid one."""

    @abstractmethod
    async def _make_topics(self) -> None:
        """Create the agent's own topics and those that it reads by name, if they are missing."""

    def _versions(self) -> list[str] | None:
        """Return the graph versions that the agent carries; None: it has no graph."""
        return None

    @abstractmethod
    async def _topics(self) -> Sequence[str]:
        """Return the topics that the agent reads."""

    def _sweep(self, ids: Mapping[str, str]) -> int:
        """Remove state files of topics that are gone; return how many. `ids`: the log's topic ids by name."""
        return 0

    async def _follow(self, subscription: Subscription) -> None:
        """Subscribe to new topics that match a pattern; called at each heartbeat."""
        return

    @abstractmethod
    def _owner(self, place: TopicPartition, assignment: Assignment) -> PartitionOwner[Any]:
        """Make the owner of a partition."""

    def __init__(self, log: EventLog, agent: BaseAgent, also: Sequence[BaseAgent] = ()) -> None:
        self._log = log
        self._telling = FailureLines(agent.context.progress, agent.context.clock)
        self._agent = agent
        self._agents = (agent, *also)
        self._context = agent.context
        context = agent.context
        outlives_process = not log.url.startswith("memory:")
        self._registry = CapabilityRegistry(
            log,
            clock=context.clock,
            policy=context.policy,
            folder=context.home / SNAPSHOTS if outlives_process else None,
        )
        self._own_tools = OwnTools(log, self._agents, self._registry, self._telling)
        self._owners: dict[TopicPartition, PartitionOwner[Any]] = {}
        self._subscription: Subscription | None = None
        self._failure: asyncio.Future[None] | None = None
        self._joined: asyncio.Future[Subscription] | None = None
        self.agent_type = agent.agent_type
        self._started: list[BaseAgent] = []
        self._mark = None
        if outlives_process:
            group = log.topology.workers(agent.agent_type)
            self._mark = MemberMark(context.home, log, group, context.progress)
        self._answered = True
        self.leaving = ""
        self._moved = asyncio.Event()
        self._taken: list[PartitionContext] = []
        self._takeovers_unknown = False

    @property
    def context(self) -> AgentContext:
        """The context of its agent."""
        return self._context

    async def announce(self) -> None:
        """Create the topics and announce the agent; it is given nothing to do before `join`.

        Raises the error of an agent or topic that is not valid.
        """
        agent, log, topology = self._agent, self._log, self._log.topology
        for one in self._agents:
            for event in one.events:
                log.catalogue.register(event)
        self._failure = asyncio.get_running_loop().create_future()
        for one in self._agents:
            await one.start()
            self._started.append(one)
        # An agent that cannot run fails here, before it is announced.
        self._check()
        names = [topology.registry, topology.dlq, topology.heartbeat]
        await log.ensure_topics([topology.spec(name) for name in names])
        await self._make_topics()
        swept = self._sweep({name: shape.topic_id for name, shape in (await log.layout()).items()})
        if swept:
            self._context.progress(f"{agent.agent_type}: {swept} states of topics that are gone were removed")
        for capability in agent.capabilities:
            await self._registry.register(self._context.agent_ref, capability)
        await self._own_tools.register()
        await self._say(
            AgentStarted(
                agent_id=self._context.agent_ref.agent_id,
                agent_type=agent.agent_type,
                agent_version=agent.version,
                instance_id=self._context.agent_ref.instance_id,
                capabilities=[capability.id for capability in agent.capabilities],
            )
        )

    async def join(self) -> None:
        """Join the group: from now on the agent is given partitions."""
        self._joined = joined = asyncio.get_running_loop().create_future()
        self._subscription = await self._log.subscribe(
            self._log.topology.workers(self.agent_type),
            await self._topics(),
            self._handle,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            types=self._types,
        )
        joined.set_result(self._subscription)
        if self._mark is not None:
            self._mark.hold(self._subscription.member)
            await self._mark.dismiss_the_dead()

    async def wait(self) -> None:
        """Return when the host is closed; raise the error that ended it before."""
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
        """Write heartbeats until cancelled: every `HEARTBEAT_S`, and when partitions have come or gone."""
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
            self._answered = await self._beat_if_possible(beat)
            sequence += 1
            await self._follow_if_possible()
            await self._own_tools.refresh()
            await self._say_takeovers()
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes as the awaited call ends.
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._moved.wait()

    async def _beat_if_possible(self, beat: AgentHeartbeat) -> bool:
        """Write a heartbeat; if the log does not answer, report that it is waited for."""
        problem = await self._try_to_say(beat, PATIENCE_S)
        if problem is not None:
            self._context.progress(waiting_for(problem))
        else:
            self._context.progress(STILL_ANSWERS if self._answered else LOG_ANSWERS)
        return problem is None

    async def _say_takeovers(self) -> None:
        """Print from whom the partitions were taken that came since the last time.

        These lines are for people only: if they cannot be made, that is printed once, and the host goes on.
        """
        taken = self._taken.copy()
        self._taken.clear()  # the same list: each owner adds to it for as long as it lives
        try:
            async with asyncio.timeout(PATIENCE_S):
                for line in await takeover_lines(self._log, taken):
                    self._context.progress(line)
        except (LogUnavailableError, TopicNotFoundError):
            return  # the heartbeat says that the log is away
        except EventStoreError as error:
            self._say_unknown_takeovers(brief(error, WIDTH))
        except TimeoutError:
            self._say_unknown_takeovers(f"no answer for {PATIENCE_S:.0f} s")

    def _say_unknown_takeovers(self, problem: str) -> None:
        """Print once that it is not known from whom partitions were taken over."""
        if not self._takeovers_unknown:
            self._takeovers_unknown = True
            self._telling.tell(
                f"{self.agent_type}: it is not known from whom partitions were taken: {problem}"
            )

    async def _follow_if_possible(self) -> None:
        if self._subscription is None:
            return
        with suppress(LogUnavailableError, TopicNotFoundError):  # tried again at the next heartbeat
            await self._follow(self._subscription)

    def partitions(self) -> list[PartitionStatus]:
        """Return the status of each partition that this host works on."""
        found = []
        for place, owner in sorted(self._owners.items()):
            status = owner.status(self._subscription.position(place) if self._subscription else None)
            if status is not None:
                found.append(status)
        return found

    def tenures(self) -> list[Any]:
        """Return the present tenures of the owned partitions, in partition order."""
        owners = [owner for _, owner in sorted(self._owners.items())]
        return [owner.tenure for owner in owners if owner.tenure is not None]

    def waits_for(self) -> list[str]:
        """Return the reasons why the host is not ready; empty: it is ready."""
        if self._subscription is None:
            return [f"{self.agent_type} has not joined its group yet"]
        taking = [(p, owner) for p, owner in sorted(self._owners.items()) if owner.tenure is None]
        why = [
            f"{self.agent_type} is taking partition {place.partition}"
            if owner.stopped is None
            else f"{self.agent_type}: partition {place.partition} is stopped: {owner.stopped.message}"
            for place, owner in taking
        ]
        return why if self._answered else [*why, f"{self._log.url} does not answer"]

    async def close(self) -> None:
        """Leave the group: give every partition up in order."""
        if self._subscription is not None:
            self.leaving = f"giving up its partitions on {self._log.url}"
            await self._subscription.close()
            self._subscription = None
            if self._mark is not None:
                self._mark.let_go()
            await self._say_if_possible(
                AgentStopped(
                    agent_id=self._context.agent_ref.agent_id,
                    agent_type=self._agent.agent_type,
                    instance_id=self._context.agent_ref.instance_id,
                    reason="closed",
                ),
                FAREWELL_S,
            )
        # A subscription that failed has not revoked these.
        await self._release(list(self._owners))
        await self._own_tools.close()
        await self._registry.close()
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
                return place, await owner.take()

        starts = await _all(own(place) for place in sorted(partitions))
        self._moved.set()
        return {place: start for place, start in starts if start is not None}

    async def _revoked(self, partitions: frozenset[TopicPartition]) -> None:
        try:
            await self._release(partitions)
        except Exception as error:
            if self.leaving:  # no caller waits for the subscription's error any more
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
        """Write an event as `_say` does; if the log does not answer in time, report that and go on."""
        problem = await self._try_to_say(event, patience_s)
        if problem is not None:
            self._context.progress(f"{event.TYPE} was not written: {problem}")
        return problem is None

    async def _try_to_say(self, event: DomainEvent, patience_s: float) -> str | None:
        """Write an event; return why it was not written in time."""
        try:
            async with asyncio.timeout(patience_s):
                await self._say(event)
                return None
        except (LogUnavailableError, LogFullError, CommitUnknownError) as error:
            return error.message
        except TimeoutError:
            return f"no answer for {patience_s:.0f} s"

    async def _say(self, event: DomainEvent) -> None:
        producer = self._context.agent_ref
        envelope = root_event(event, producer, self._context.clock, partition_key=producer.agent_id)
        await self._log.append([envelope])


async def _all(calls: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all calls and return their results; raise the first error when all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    returned = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        returned.append(result)
    return returned
