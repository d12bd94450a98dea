"""Host of an agent that runs a graph: subscribes to its inbox and owns the inbox partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from noesium_stream.agent import BaseGraphicAgent
from noesium_stream.errors import brief
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.generations import Generation, generations, generations_in
from noesium_stream.log.port import EventLog, Subscription, TopicPartition
from noesium_stream.log.topics import generation_of
from noesium_stream.tool.atomic import AtomicTool
from noesium_stream.worker.agent_directory import Directory
from noesium_stream.worker.circuits import Circuits
from noesium_stream.worker.context import PartitionContext
from noesium_stream.worker.graph_versions import Releases, named
from noesium_stream.worker.host import Host
from noesium_stream.worker.ownership.assignment import Assignment
from noesium_stream.worker.ownership.owner import PartitionOwner
from noesium_stream.worker.pieces.arrivals import PieceArrivals
from noesium_stream.worker.pieces.outbox import PieceOutbox
from noesium_stream.worker.pieces.run_pieces import PieceTraffic
from noesium_stream.worker.provider_watch import ProviderWatch
from noesium_stream.worker.runs.late_outcomes import OutcomeReports
from noesium_stream.worker.runs.slots import Slots
from noesium_stream.worker.runs.unrecorded_outcomes import UnrecordedOutcomes
from noesium_stream.worker.state.known_runs import Bounds
from noesium_stream.worker.state.restore import states_of
from noesium_stream.worker.state.stale_files import sweep_runs
from noesium_stream.worker.state.state_keeper import StateStore
from noesium_stream.worker.tasks.taking import TaskTaking
from noesium_stream.worker.tenure import RunPartition, RunPartitionOwner, open_tenure


class RunHost(Host):
    """Runs the graphs of one agent type.

    Args:
        log: an open log.
        agent: the agent; new runs start with it.
        also: other versions of the agent, which open runs may be pinned to.
        grace_s: see `Worker`, as for `bounds` and `keeps_state`.
        slots: the limit on its runs that work at the same time.
        on_approval: see `Worker`.
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
        on_approval: Callable[[EventEnvelope], None] | None = None,
    ) -> None:
        super().__init__(log, agent, also)
        self._graphic = (agent, *also)
        self._releases: Releases | None = None
        self._grace_s = grace_s
        self._slots = slots
        self._bounds = bounds
        self._keeps_state = keeps_state
        self._on_approval = on_approval
        self._generations: Sequence[Generation] = ()
        tell = self._telling.tell
        self._pieces = PieceTraffic(PieceOutbox(log, tell), PieceArrivals(log, tell))
        self._watch = ProviderWatch(self._registry, self._failed)
        self._circuits = Circuits(log, self._registry, agent.context.agent_ref, agent.context.clock)
        self._reports = OutcomeReports(log, agent.context.clock, agent.context.progress)
        self._takings: list[TaskTaking] = []

    async def announce(self) -> None:
        """See `Host.announce`."""
        for agent in self._graphic:
            if agent.toolbox is not None:
                agent.toolbox.trust(self._accepts)
                await agent.toolbox.start()
        await super().announce()

    async def join(self) -> None:
        """See `Host.join`; takes tasks from then on."""
        await super().join()
        for capability_id in dict.fromkeys(self._graphic[0].tasks):
            context = self._agent.context
            taking = TaskTaking(self._log, context, capability_id, self._directory(), self._failed)
            self._takings.append(taking)
            await taking.start()

    def _accepts(self, tool: AtomicTool) -> bool:
        return self._own_tools.is_accepted(self.agent_type, tool.tool_id, tool.definition_hash)

    async def close(self) -> None:
        """See `Host.close`; calls of given-up runs end with the process."""
        try:
            while self._takings:
                await self._takings.pop().close()
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            await super().close()
        finally:
            for agent in self._graphic:
                if agent.toolbox is not None:
                    await agent.toolbox.stop()
                agent.memory.close()
            await self._pieces.close()
            await self._watch.close()
            await self._circuits.settled()
            await self._reports.close()

    def _asked(self, event: EventEnvelope) -> None:
        """Hand a question to whoever tells people of it; a fault there is not the run's."""
        if self._on_approval is None:
            return
        try:
            self._on_approval(event)
        except Exception as error:
            run_id = event.payload["run_id"]
            self._telling.tell(f"nobody was told of a question of run {run_id}: {brief(error, 200)}")

    def _check(self) -> None:
        for agent in self._graphic:
            _ = agent.durable
            agent.check_tasks()
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

    def _directory(self) -> Directory:
        context = self._agent.context
        return Directory(
            self._log, self._registry, self._watch, self._circuits, context.clock, context.progress
        )

    def _successor(self, topic: str) -> Generation | None:
        number = generation_of(topic) + 1
        return next((later for later in self._generations if later.number == number), None)

    def _owner(self, place: TopicPartition, assignment: Assignment) -> RunPartitionOwner:
        if self._releases is None:
            raise ValueError("a host has started before it owns anything")
        log, agent, releases = self._log, self._agent.context, self._releases
        generation = generation_of(place.topic)
        context = PartitionContext(
            log=log,
            clock=agent.clock,
            agent_ref=agent.agent_ref,
            partition=place.partition,
            inbox=place.topic,
            journal=log.topology.journal(self.agent_type, generation),
            journal_partition=place.partition,
            key=f"partition-{place.partition}",
            generation=generation,
            progress=agent.progress,
            tell=self._telling.tell,
            asked=self._asked,
            policy=agent.policy,
            pieces=self._pieces,
        )
        partition = RunPartition(
            context=context,
            releases=releases,
            assignment=assignment,
            directory=self._directory(),
            store=StateStore(context, releases, self._bounds, in_file=self._keeps_state),
            slots=self._slots,
            reports=self._reports,
            unrecorded=UnrecordedOutcomes(),
            successor=self._successor(place.topic),
            grace_s=self._grace_s,
            on_moved=self._moved.set,
        )
        return PartitionOwner(
            context,
            assignment,
            partial(open_tenure, partition),
            on_change=self._moved.set,
            on_taken=self._taken.append,
            on_failure=self._failed,
        )
