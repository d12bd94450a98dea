"""Agents without a graph: what comes of an event is a pure function of it and a state (stream processing)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, ClassVar

from noesium_stream.agent.base import BaseAgent
from noesium_stream.errors import ConfigError
from noesium_stream.event.domain import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection


class BaseHandler(BaseAgent):
    """An agent that reads facts and writes facts, exactly once, with a keyed state and no run.

    Its state is a projection of what it reads: rows by `key`, folded by `apply`. What it makes of an event
    and how far it has read are one commit; a process that takes a partition over goes on behind the last one,
    with the state that those before it have made.

    Class attributes:
        state: the projection class whose `topics` and `event_types` it reads, and whose row it is given. What
            the projection's `key` gives None for is not handled.

    `handle` is called once for each event, before the event is folded into the state. It must be pure, and
    must not change the state that it is given: after a crash it is called again for events whose commit did
    not come about.
    """

    state: ClassVar[type[BaseProjection[Any]]]

    @abstractmethod
    def handle(self, event: EventEnvelope, state: Any) -> Iterable[DomainEvent]:
        """What comes of an event.

        An event that is returned goes where its type says (`events.<domain>`), under the partition key of the
        one that it comes of; `partition_key_of` may say another one.

        Args:
            event: the next one of its partition.
            state: the row of the event's key, before it; `initial_state()` where there is none.
        """

    def partition_key_of(self, made: DomainEvent, event: EventEnvelope) -> str | None:
        """The partition key of an event that `handle` made of `event`; by default that of `event`."""
        return event.partition_key

    @classmethod
    def check(cls) -> None:
        """Judge what the class declares.

        Raises:
            ConfigError: it names no projection, or one that it cannot have.
            ProjectionLoadError: see `BaseProjection.check`.
        """
        if iscoroutinefunction(cls.handle) or isasyncgenfunction(cls.handle):
            raise ConfigError(
                f"{cls.__name__}.handle is an `async def`, and what comes of an event is computed at once.",
                hint="Write `def handle`, a pure function. What reaches out is an effect of a graph's node.",
            )
        state = getattr(cls, "state", None)
        if not (isinstance(state, type) and issubclass(state, BaseProjection)):
            raise ConfigError(
                f"{cls.__name__}.state is {state!r}, not the class of a projection.",
                hint="Declare state = MyProjection: what it reads, its rows, and how they are folded.",
            )
        if not state.decodes:
            raise ConfigError(
                f"{cls.__name__} handles events, and {state.__name__} reads their headers alone.",
                hint=f"Leave `decodes` out of {state.__name__}.",
            )
        if state.spreads():
            raise ConfigError(
                f"{cls.__name__} is given one row, and {state.__name__} has events of several.",
                hint=f"Declare `key` in {state.__name__}, not `keys`.",
            )
