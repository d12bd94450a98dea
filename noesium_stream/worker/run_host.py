"""The agents that run graphs: their inbox, and an owner of each partition of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.log.generations import Generation, generations, generations_in
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.topics import generation_of
from noesium_stream.worker.acquiring import Assignment
from noesium_stream.worker.host import Host
from noesium_stream.worker.known_runs import Bounds
from noesium_stream.worker.partition import PartitionOwner
from noesium_stream.worker.releases import Releases, named
from noesium_stream.worker.reports import Reports
from noesium_stream.worker.restore import states_of
from noesium_stream.worker.slots import Slots
from noesium_stream.worker.sweeping import sweep_runs


class RunHost(Host):
    """Runs the graphs of one agent type.

    Args:
        log: an open log.
        agent: the agent; new runs begin with it.
        also: other versions of it, which open runs may be pinned to.
        grace_s: see `Worker`; so for `bounds` and `keeps_state`.
        slots: how many of its runs may be at work at once.
    """

    def __init__(
        self,
        log: EventLog,
        agent: BaseGraphicAgent,
        grace_s: float,
        slots: Slots,
        bounds: Bounds,
        *,
        also: Sequence[BaseGraphicAgent] = (),
        keeps_state: bool,
    ) -> None:
        super().__init__(log, agent, also)
        self._graphic = (agent, *also)
        self._releases: Releases | None = None
        self._grace_s = grace_s
        self._slots = slots
        self._bounds = bounds
        self._keeps_state = keeps_state
        self._generations: Sequence[Generation] = ()
        self._reports = Reports(log, agent.context.clock, agent.context.progress)

    async def close(self) -> None:
        """See `Host.close`; calls that were left behind end with the process."""
        try:
            await super().close()
        finally:
            await self._reports.close()

    def _check(self) -> None:
        for agent in self._graphic:
            _ = agent.durable
        self._releases = Releases(self._graphic[0], self._graphic[1:])

    def _versions(self) -> list[str] | None:
        return None if self._releases is None else list(map(named, self._releases.graphs))

    async def _make_topics(self) -> None:
        await generations(self._log, self.agent_type)

    def _sweep(self, ids: Mapping[str, str]) -> int:
        if not self._keeps_state:
            return 0
        folder = states_of(self._agent.context.home, self.agent_type)
        return sweep_runs(folder, self._log.url, frozenset(ids.values()))

    async def _topics(self) -> Sequence[str]:
        self._generations = await generations(self._log, self.agent_type)
        return [generation.inbox for generation in self._generations]

    async def _follow(self, subscription: Subscription) -> None:
        found = generations_in(await self._log.layout(), self._log.topology, self.agent_type)
        if len(found) > len(self._generations):
            self._generations = found
            subscription.change_topics([generation.inbox for generation in found])

    def _successor(self, topic: str) -> Generation | None:
        number = generation_of(topic) + 1
        return next((later for later in self._generations if later.number == number), None)

    def _owner(self, place: TopicPartition, assignment: Assignment) -> PartitionOwner:
        if self._releases is None:
            raise ValueError("a host has started before it owns anything")
        return PartitionOwner(
            self._log,
            self._releases,
            place,
            self._registry,
            assignment,
            on_failure=self._failed,
            on_recovered=self._moved.set,
            tell=self._telling.tell,
            grace_s=self._grace_s,
            slots=self._slots,
            bounds=self._bounds,
            keeps_state=self._keeps_state,
            successor=self._successor(place.topic),
            reports=self._reports,
        )
