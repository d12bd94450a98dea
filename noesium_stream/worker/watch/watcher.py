"""The watcher: writes `agent.unavailable`, `agent.recovered` and `capability.circuit.probed` (RFC-0005).

Every worker may run one. They are a consumer group over the registry, which has one partition: who has it
watches, and writes with a transactional writer under its tenure of the partition (KIP-447). So one process
writes at a time, and one that was cut off and does not know it yet is refused by the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from noesium_stream.capabilities.registry_copy import RegistryCopy
from noesium_stream.clock import Clock
from noesium_stream.errors import (
    CommitUnknownError,
    CorruptRecordError,
    EventStoreError,
    FencedError,
    LogFullError,
    LogTruncatedError,
    LogUnavailableError,
    TenureEndedError,
    TopicNotFoundError,
    brief,
)
from noesium_stream.event.domain_event import root_event
from noesium_stream.event.envelope import AgentRef
from noesium_stream.event.standard import AgentHeartbeat
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.port import EventLog, LogWriter, Subscription, TopicPartition, outgoing
from noesium_stream.log.record import Record
from noesium_stream.log.topics import WATCHER
from noesium_stream.worker.watch.judge import Watched, judge

PERIOD_S: Final = 5.0
"""Time between two looks, in seconds."""

_PAUSE_S: Final = 1.0
_LEAVING_S: Final = 2.0
"""How long an ending worker waits until it has left the watchers."""

_PASSING: Final = (
    CommitUnknownError,
    FencedError,
    LogFullError,
    LogTruncatedError,
    LogUnavailableError,
    TenureEndedError,
    TopicNotFoundError,
)
_NOTHING: Final = ("key.none",)
"""The group is asked for no records: its members only share the partition."""


class Watcher:
    """Takes part in watching until cancelled.

    Args:
        log: the log.
        reference: in whose name it writes: an agent of this process. Where there is a policy, it has to be
            allowed to register for the agents that it watches.
        clock: of the waits.
        policy: decides what in the registry counts; None: everything.
        progress: takes one line for people.
        period_s: time between two looks, in seconds.
    """

    def __init__(
        self,
        log: EventLog,
        reference: AgentRef,
        clock: Clock,
        *,
        policy: Policy | None = None,
        progress: Callable[[str], None] = lambda line: None,
        period_s: float = PERIOD_S,
    ) -> None:
        self._log = log
        self._reference = reference
        self._clock = clock
        self._policy = policy
        self._progress = progress
        self._period_s = period_s
        self._registry = log.topology.registry
        self._joined: asyncio.Future[Subscription] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._told = ""

    async def run(self) -> None:
        """Be a member of the watchers, and watch whenever it is this member's turn.

        What goes wrong is told once and tried again: nothing here may end a worker.
        """
        while True:
            try:
                await self._member()
            except EventStoreError as error:
                self._tell(error)
            await self._clock.sleep(_PAUSE_S)

    def _tell(self, error: EventStoreError) -> None:
        """Tell people what is wrong, once until it is something else."""
        problem = brief(error, 200)
        if problem != self._told:
            self._told = problem
            self._progress(f"health of agents: {problem}")

    async def _member(self) -> None:
        await self._log.ensure_topics(
            [self._log.topology.spec(topic) for topic in (self._registry, self._log.topology.heartbeat)]
        )
        self._joined = joined = asyncio.get_running_loop().create_future()
        subscription = await self._log.subscribe(
            self._log.topology.watchers,
            [self._registry],
            self._ignore,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            types=_NOTHING,
        )
        joined.set_result(subscription)
        try:
            await subscription.wait()
        finally:
            await self._end()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING_S):
                    await subscription.close()

    async def _ignore(self, records: Sequence[Record]) -> None:
        """Take records of the registry: the copy reads them itself."""

    async def _assigned(self, places: frozenset[TopicPartition]) -> Mapping[TopicPartition, int]:
        for place in places:
            await self._end()
            self._watching = asyncio.create_task(self._watch(place), name="watch the agents")
        return {}

    async def _revoked(self, places: frozenset[TopicPartition]) -> None:
        if places:
            await self._end()

    async def _end(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, place: TopicPartition) -> None:
        """Watch until cancelled; one that is fenced while the partition is still its own begins anew."""
        if self._joined is None:
            raise ValueError("the member has not joined")
        subscription = await self._joined
        while True:
            try:
                tenure = await subscription.tenure(place)
                writer = await self._log.writer(WATCHER, tenure=tenure)
                try:
                    await self._look(writer)
                finally:
                    await writer.close()
            except _PASSING:
                pass  # the log is away, or another process watches: the group says so by taking the partition
            except EventStoreError as error:
                self._tell(error)
            await self._clock.sleep(_PAUSE_S)  # and begin anew: nobody could be heard

    async def _look(self, writer: LogWriter) -> None:
        """Look at the registry and the heartbeats again and again; raises what keeps it from that."""
        copy = RegistryCopy(self._log, clock=self._clock, policy=self._policy)
        await copy.refresh()
        heartbeat = self._log.topology.heartbeat
        start = await self._log.end(heartbeat)
        watched = Watched(self._clock.monotonic())
        hearing = asyncio.create_task(self._hear(heartbeat, start, watched), name="hear the agents")
        try:
            await self._say(writer, copy, watched, hearing)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, topic: str, start: Mapping[int, int], watched: Watched) -> None:
        async for batch in self._log.read_batches(topic, start, types=(AgentHeartbeat.TYPE,)):
            now_s = self._clock.monotonic()
            for record in batch:
                with suppress(CorruptRecordError):  # anybody may write there
                    watched.hear(record.envelope, now_s)

    async def _say(
        self, writer: LogWriter, copy: RegistryCopy, watched: Watched, hearing: asyncio.Task[None]
    ) -> None:
        while True:
            await self._clock.sleep(self._period_s)
            if hearing.done():
                return hearing.result()
            state = await copy.refresh()
            said = judge(state, watched, self._clock.monotonic())
            if said:
                events = [root_event(event, self._reference, self._clock) for event in said]
                key = self._reference.agent_id
                await writer.commit([outgoing(event, self._registry, 0, key) for event in events])
                for event in said:
                    self._progress(_line(event.event_type(), event.payload()))


def _line(kind: str, payload: Mapping[str, object]) -> str:
    if kind == "agent.unavailable":
        return f"{payload['agent_id']} is unavailable: {payload['reason']}"
    if kind == "agent.recovered":
        return f"{payload['agent_id']} is available again"
    return f"{payload['capability_id']} of {payload['agent_id']} may be tried again"
