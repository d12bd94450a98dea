"""The taking of tasks (RFC-0001): one member of the group of a capability's subscribers, for one agent.

All workers that take tasks of a capability are members of one group, of whatever agent types: each partition
of the task topic has one subscriber, and each task is taken once. A task goes from there to the inbox of the
subscriber's agent, where it is a command like any other (`tenure`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from noesium_stream.agent import AgentContext
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.record import Record
from noesium_stream.worker.agent_directory import Directory
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.ownership.owner import PartitionOwner
from noesium_stream.worker.tasks.tenure import TaskPartition, TaskTenure, open_tenure


class TaskTaking:
    """Takes tasks of one capability for one agent, from `start` to `close`.

    Args:
        log: the log.
        agent: context of the agent.
        capability_id: whose tasks are taken.
        directory: finds the agent's inbox.
        on_failure: called with the error that ends it before `close`.
    """

    def __init__(
        self,
        log: EventLog,
        agent: AgentContext,
        capability_id: str,
        directory: Directory,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._agent = agent
        self._capability_id = capability_id
        self._directory = directory
        self._on_failure = on_failure
        self._owners: dict[TopicPartition, PartitionOwner[TaskTenure]] = {}
        self._joined: asyncio.Future[Subscription] | None = None
        self._subscription: Subscription | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions whose tasks are taken here now."""
        return sorted(place for place, owner in self._owners.items() if owner.tenure is not None)

    async def start(self) -> None:
        """Create the topics and join the group.

        Raises:
            TopicConfigError, LogUnavailableError
        """
        topology = self._log.topology
        topics = topology.task(self._capability_id), topology.taken(self._capability_id)
        await self._log.ensure_topics([topology.spec(topic) for topic in topics])
        await self._directory.learn_inbox(self._agent.agent_ref.agent_type)
        self._joined = asyncio.get_running_loop().create_future()
        self._subscription = await self._log.subscribe(
            topology.takers(self._capability_id),
            topics[:1],
            self._handle,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
        )
        self._joined.set_result(self._subscription)
        self._watch = asyncio.create_task(self._watched(self._subscription), name=f"tasks {topics[0]}")

    async def close(self) -> None:
        """Leave the group: others take what comes from now on."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait((self._watch,))
            self._watch = None
        if self._subscription is not None:
            await self._subscription.close()
            self._subscription = None
        await self._revoked(frozenset(self._owners))  # a subscription that failed has not revoked them

    async def _watched(self, subscription: Subscription) -> None:
        try:
            await subscription.wait()
        except Exception as error:
            self._on_failure(error)

    async def _handle(self, records: Sequence[Record]) -> None:
        by_partition: defaultdict[TopicPartition, list[Record]] = defaultdict(list)
        for record in records:
            by_partition[TopicPartition(record.topic, record.partition)].append(record)
        await asyncio.gather(*(self._owners[place].accept(batch) for place, batch in by_partition.items()))

    async def _assigned(self, places: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        if self._joined is None:
            raise ValueError("a member joins its group before it is given partitions")
        starts: dict[TopicPartition, int] = {}
        for place in sorted(places):
            owner = self._owners[place] = self._owner(place, self._joined)
            start = await owner.take()
            if start is not None:
                starts[place] = start
        return starts

    async def _revoked(self, places: frozenset[TopicPartition]) -> None:
        owners = [self._owners.pop(place) for place in places if place in self._owners]
        await asyncio.gather(*(owner.release() for owner in owners))

    def _owner(
        self, place: TopicPartition, joined: asyncio.Future[Subscription]
    ) -> PartitionOwner[TaskTenure]:
        agent = self._agent
        assignment = Assignment(place, joined, agent.clock)
        context = PartitionContext(
            log=self._log,
            clock=agent.clock,
            agent_ref=agent.agent_ref,
            partition=place.partition,
            inbox=place.topic,
            journal=self._log.topology.taken(self._capability_id),
            journal_partition=0,  # known once the topic is there
            key=f"{place.topic}/{place.partition}",
            progress=agent.progress,
        )
        partition = TaskPartition(context, self._capability_id, place, assignment, self._directory)
        return PartitionOwner(
            context, assignment, partial(open_tenure, partition), on_failure=self._on_failure
        )
