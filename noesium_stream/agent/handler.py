"""Agents without a graph: output events are a pure function of an event and a state (stream processing)."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, ClassVar, Final, Protocol

from noesium_stream.agent.base import BaseAgent
from noesium_stream.agent.capability import marked_in
from noesium_stream.agent.request import AgentRequest
from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection

_JOURNALS: Final = re.compile(r"agent\.[^.]+\.journal(?:\*|\.g(?:\*|\d+))?")
"""A pattern that only journals match. Later generations are read in any case."""
_WILDCARDS: Final = "*?["


class Feeder(Protocol):
    """What tells a handler of time, and of what else does not come by itself, as events that it handles.

    It lives as long as the partition's owner; several may live at the same time for a moment. So whatever it
    appends may be there twice, and late, and the handler has to see that in its state.
    """

    async def follow(self, rows: Mapping[str, Any]) -> None:
        """Take the new states of these rows, None for removed ones, before what was made is on the log."""

    async def wait(self) -> None:
        """Return when it is closed; raise the error that ended it before."""

    async def close(self) -> None:
        """Append nothing any more."""


class BaseHandler(BaseAgent):
    """An agent that reads facts and writes facts, exactly once, with a keyed state and no run.

    Its state is a projection of its input: rows by `key`, folded by `apply`. The output of an event and the
    read position are one commit. A process that takes a partition over continues after the last commit, with
    the state of its predecessors.

    Each partition that it reads has a state of its own, and `merge` does not help: `handle` gets one row, as
    it is now. So all events of a key have to lie in one partition: `key` is the partition key, and the state
    reads journals, or one topic of facts. Other events are brought together first: a handler publishes them
    under another key (`partition_key_of`), and this one reads what it made. Or the state declares
    `local_keys = True`: then `handle` gets what its partition has of the key.

    Class attributes:
        state: the projection class: it reads the class's `topics` and `event_types`, and `handle` gets the
            event's row. Events whose `key` is None are not handled. An event with a key that is not its
            partition key stops the handler.

    `handle` is called once for each event, before the event is folded into the state. It must be pure and
    must not change the given state: after a crash it is called again for events whose commit did not succeed.

    An event that was appended again (same `event_id`, same agent id of the producer, at most 4,000 offsets of
    its partition later) is neither handled nor folded.
    """

    state: ClassVar[type[BaseProjection[Any]]]

    @abstractmethod
    def handle(self, event: EventEnvelope, state: Any) -> Iterable[DomainEvent | AgentRequest]:
        """The output events for an event.

        A returned event is sent to the topic of its type (`events.<domain>`), with the partition key of the
        input event unless `partition_key_of` returns another one. A `AgentRequest` is sent to an inbox.

        Args:
            event: the next event of its partition.
            state: the row of the event's key before the event; `initial_state()` if there is none.
        """

    def partition_key_of(self, made: DomainEvent, event: EventEnvelope) -> str | None:
        """The partition key of an event that `handle` returned for `event`; by default that of `event`."""
        return event.partition_key

    async def feeder(self, rows: Mapping[str, Any]) -> Feeder | None:
        """What appends the events of time for one partition, which has these rows; None: nothing does."""
        return None

    @classmethod
    def check(cls) -> None:
        """Validate the declarations of the class.

        Raises:
            ConfigError: it names no projection, or one that it cannot use.
            ProjectionLoadError: see `BaseProjection.check`.
        """
        if iscoroutinefunction(cls.handle) or isasyncgenfunction(cls.handle):
            raise ConfigError(
                f"{cls.__name__}.handle is an `async def`, and what comes of an event is computed at once.",
                hint="Write `def handle`, a pure function. What reaches out is an effect of a graph's node.",
            )
        marked = list(marked_in(cls))
        if marked:
            raise ConfigError(
                f"{cls.__name__} is a handler, which has no runs: it cannot offer {', '.join(marked)}.",
                hint="Put @capability on a method of a BaseGraphicAgent.",
            )
        state = getattr(cls, "state", None)
        if not (isinstance(state, type) and issubclass(state, BaseProjection)):
            raise ConfigError(
                f"{cls.__name__}.state is {state!r}, not the class of a projection.",
                hint="Declare state = MyProjection: what it reads, its rows, and how they are folded.",
            )
        if state.headers_only:
            raise ConfigError(
                f"{cls.__name__} handles events, and {state.__name__} reads their headers alone.",
                hint=f"Leave `headers_only` out of {state.__name__}.",
            )
        if state.spreads():
            raise ConfigError(
                f"{cls.__name__} is given one row, and {state.__name__} has events of several.",
                hint=f"Declare `key` in {state.__name__}, not `keys`.",
            )
        if not state.local_keys:
            _check_one_partition(cls.__name__, state)


def _check_one_partition(handler: str, state: type[BaseProjection[Any]]) -> None:
    """Refuse a state that may have parts of one key in several partitions.

    Raises:
        ConfigError
    """
    facts = [topic for topic in state.topics if not _JOURNALS.fullmatch(topic)]
    if not state.keyed():
        why = "it declares no `key`, so there is a state per partition"
        mend = "Declare `key`, which returns the partition key"
    elif facts and (len(state.topics) > 1 or set(facts[0]) & set(_WILDCARDS)):
        why = "it reads several topics, and a key's events lie in a partition of each"
        mend = "Name one topic in `topics`, or journals alone"
    else:
        return
    raise ConfigError(
        f"{handler} handles an event with the state of its partition, and {state.__name__} may have parts of "
        f"a key in several: {why}.",
        hint=f"{mend}; or say local_keys = True in {state.__name__} if a state per partition is wanted.",
    )
