"""The partition that a worker owns: its topics, its number, and how to write about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from noesium_stream.clock import Clock
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.worker.pieces.run_pieces import PieceTraffic


def _silent(line: str) -> None:
    return


def _untold(event: EventEnvelope) -> None:
    return


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """One partition of an agent type, as this process sees it.

    Attributes:
        log: where its topics are.
        clock: time and ids.
        agent_ref: the agent in this process.
        partition: number of the partition that is owned.
        inbox: topic that the owner reads.
        journal: topic that the owner writes.
        journal_partition: partition of the journal that belongs to the owned one.
        key: partition key of events about the partition itself.
        generation: of the inbox and the journal (see `noesium_stream.log.generations`).
        progress: takes one line for people.
        tell: takes one line about a failure for people.
        asked: takes the `approval.requested` of a question that is on the log; must return at once.
        policy: who may ask what; None: everybody everything.
        pieces: the pieces of answers; None: there are none.
    """

    log: EventLog
    clock: Clock
    agent_ref: AgentRef
    partition: int
    inbox: str
    journal: str
    journal_partition: int
    key: str
    generation: int = 1
    progress: Callable[[str], None] = _silent
    tell: Callable[[str], None] = _silent
    asked: Callable[[EventEnvelope], None] = _untold
    policy: Policy | None = None
    pieces: PieceTraffic | None = None

    @property
    def agent_type(self) -> str:
        """Type of the agent."""
        return self.agent_ref.agent_type

    @property
    def name(self) -> str:
        """Name of the partition in messages."""
        return f"{self.journal}/{self.partition}"

    def record(
        self,
        event: DomainEvent,
        headers: tuple[tuple[str, bytes], ...] = (),
        *,
        trace: TraceContext | None = None,
        causation_id: str | None = None,
    ) -> Outgoing:
        """Make the journal record of an event about the partition itself.

        Args:
            event: the event.
            headers: of the record.
            trace: of the event; None starts a new trace.
            causation_id: id of the event that caused it.
        """
        envelope = event.to_envelope(
            self.agent_ref, trace, causation_id, partition_key=self.key, clock=self.clock
        )
        return Outgoing(envelope, self.journal, self.journal_partition, self.key, headers)
