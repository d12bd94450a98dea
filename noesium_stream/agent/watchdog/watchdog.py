"""`BaseWatchdog`: a handler that reacts to what does not happen in time (RFC-1001 §5, `msgbus`).

Decision record: that a time has passed is an event of the topic that is read, as every other input of a
handler: appended by whoever owns the partition, perhaps twice. The state says whether it still means
something, so what is made of it is committed once, whoever dies or takes over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from noesium_stream.agent.handler import BaseHandler
from noesium_stream.agent.request import AgentRequest
from noesium_stream.agent.watchdog.feeder import WatchdogFeeder
from noesium_stream.agent.watchdog.rule import ELAPSED, NOTHING, Overdue, Rule, judge
from noesium_stream.durations import Duration, in_seconds
from noesium_stream.errors import ConfigError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection

_EVENTS: Final = "events."
_SHORTEST_MS: Final = 1
_LONGEST_MS: Final = 10 * 366 * 86_400_000


class BaseWatchdog(BaseHandler):
    """A handler that is told when something has begun and does not end in time, once for each.

    Events of one key (the partition key) belong together. `overdue` is called when an event of `begins` is
    not followed by one of `ends` within the time `within`, by the times of the events. If no worker was
    there when it was due, it is called as soon as one is. A type in both `begins` and `ends` has to come
    again and again.

    Class attributes:
        topic: the topic that it reads, without the namespace: `events.DOMAIN`.
        begins: event types that begin something; while it is open, further ones are ignored.
        ends: event types that end it.
        within: how long it may take: a `timedelta`, or seconds.
        reads: the classes of these events, if they are a program's own.
    """

    topic: ClassVar[str]
    begins: ClassVar[tuple[str, ...]]
    ends: ClassVar[tuple[str, ...]]
    within: ClassVar[Duration]
    reads: ClassVar[tuple[type[DomainEvent], ...]] = ()
    _rule: ClassVar[Rule]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if all(hasattr(cls, name) for name in ("agent_type", "topic", "begins", "ends", "within")):
            within_ms = round(in_seconds(cls.within, "within", positive=True) * 1000)
            cls._rule = Rule(cls.agent_type, tuple(cls.begins), tuple(cls.ends), within_ms)
            cls.state = _state_of(cls.agent_type, cls.topic, cls._rule, cls.reads)

    @abstractmethod
    def overdue(self, one: Overdue) -> Iterable[DomainEvent | AgentRequest]:
        """What is made of it; pure, as `BaseHandler.handle`."""

    def handle(self, event: EventEnvelope, state: Overdue) -> Iterable[DomainEvent | AgentRequest]:
        """Calls `overdue` if the event says that something is."""
        _, late = judge(self._rule, state, event)
        return () if late is None else self.overdue(late)

    async def feeder(self, rows: Mapping[str, Any]) -> WatchdogFeeder:
        """What tells of the time."""
        context, rule = self.context, self._rule
        topic = context.log.topology.events(self.topic.removeprefix(_EVENTS))
        return WatchdogFeeder(
            context.log, context.clock, context.agent_ref, context.progress, topic, rule.watchdog, rows
        )

    @classmethod
    def check(cls) -> None:
        """Validate the declarations of the class.

        Raises:
            ConfigError: one is missing, or is not possible.
            ProjectionLoadError: see `BaseProjection.check`.
        """
        missing = [name for name in ("topic", "begins", "ends", "within") if not hasattr(cls, name)]
        if missing:
            raise ConfigError(
                f"The watchdog {cls.__name__} does not declare {', '.join(missing)}.",
                hint="Say what begins and what ends, in which topic of facts, and within which time.",
            )
        for name in ("begins", "ends"):
            types = getattr(cls, name)
            if not isinstance(types, tuple) or not types or not all(isinstance(one, str) for one in types):
                raise ConfigError(
                    f"{cls.__name__}.{name} is {types!r}, not a tuple of event types.",
                    hint='Write ("order.paid",) with the comma.',
                )
        if not cls.topic.startswith(_EVENTS) or set(cls.topic) & set("*?["):
            raise ConfigError(
                f"{cls.__name__} reads {cls.topic!r}: a watchdog reads one topic of facts, events.DOMAIN.",
                hint="Let a handler publish what it shall see of journals and of other topics in one.",
            )
        if not _SHORTEST_MS <= cls._rule.within_ms <= _LONGEST_MS:
            raise ConfigError(f"{cls.__name__}.within is between a millisecond and ten years.")
        super().check()


def _state_of(
    agent_type: str, read: str, rule: Rule, reads: tuple[type[DomainEvent], ...]
) -> type[BaseProjection[Overdue]]:
    """The state of a watchdog: what is open, by key."""

    class Open(BaseProjection[Overdue]):
        """What has begun and is neither ended nor overdue."""

        name = agent_type
        # Another time makes other rows of the same events.
        version = max(1, rule.within_ms)
        topics = (read,)
        events = reads
        event_types = tuple(dict.fromkeys((*rule.begins, *rule.ends, ELAPSED)))

        def key(self, event: EventEnvelope) -> str | None:
            """The partition key; without one an event belongs to nothing."""
            return event.partition_key

        def initial_state(self) -> Overdue:
            """Nothing is open."""
            return NOTHING

        def apply(self, state: Overdue, event: EventEnvelope) -> Overdue | None:
            """See `judge`."""
            after, _ = judge(rule, state, event)
            return after if after.event_id else None

    return Open
