"""Folds over the log (RFC-0004 §4, RFC-1001 §8.1): pure functions of state and event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Generic, TypeVar

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.port import Cursor, EventLog

TState = TypeVar("TState")


class BaseProjection(ABC, Generic[TState]):
    """P : (State, Event) → State. No clock, chance, network, model or unordered iteration (law 6).

    `event_types` names what it needs (exact, or a prefix ending in `.`); None takes everything.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    event_types: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def initial_state(self) -> TState:
        """The state before the first event."""

    @abstractmethod
    def apply(self, state: TState, event: EventEnvelope) -> TState:
        """The state after one more event."""

    def fold(self, events: Iterable[EventEnvelope]) -> TState:
        """The state after all of `events`, in their order."""
        state = self.initial_state()
        for event in events:
            state = self.apply(state, event)
        return state


async def catch_up(
    log: EventLog, topic: str, projection: BaseProjection[TState], state: TState, cursor: Cursor
) -> tuple[TState, dict[int, int]]:
    """Fold what `topic` holds beyond `cursor` now; return the new state and cursor.

    Events come in offset order within a partition; the order between partitions is not defined.

    Raises:
        CorruptRecordError: a record cannot be decoded; names its position. The state is unchanged.
        LogTruncatedError, LogUnavailableError, TopicNotFoundError
    """
    until = await log.end(topic)
    async for batch in log.read_batches(topic, cursor, until=until, types=projection.event_types):
        for record in batch:
            state = projection.apply(state, record.envelope)
    return state, until
