"""A handler that writes letters, of which the log may take not all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from noesium_stream.agent import BaseHandler
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log.port import EventLog
from noesium_stream.projection.base import BaseProjection


class Asked(DomainEvent, event_type="texts.asked"):
    number: int


class Written(DomainEvent, event_type="letters.written"):
    number: int
    before: int
    text: str


class Counts(BaseProjection[int]):
    name = "counts"
    topics = ("events.texts",)
    events = (Asked,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1


class Writing(BaseHandler):
    """Makes two events of each; the second one has the text for its number."""

    agent_type = "writing"
    state = Counts
    events = (Written,)
    texts: ClassVar[dict[int, str]] = {}

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        number = event.payload["number"]
        yield Written(number=number, before=state, text="")
        yield Written(number=number, before=state, text=self.texts.get(number, ""))


async def ask(log: EventLog, count: int) -> None:
    """Append so many events for it, of one key."""
    for kind in (Asked, Written):
        log.catalogue.register(kind)
    clock = SystemClock()
    trace = TraceContext(clock.token(16), clock.token(8))
    me = AgentRef("x", "x")
    await log.append(
        [Asked(number=n).to_envelope(me, trace, partition_key="a", clock=clock) for n in range(count)]
    )
