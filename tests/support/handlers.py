"""A handler that watches sales, and the owner of its partition without a worker and without a group."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from noesium_stream.agent import AgentContext, BaseHandler
from noesium_stream.clock import SystemClock
from noesium_stream.event import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.log.port import EventLog, TopicPartition
from noesium_stream.projection.base import BaseProjection
from noesium_stream.worker.handlers import tenure
from noesium_stream.worker.handlers.tenure import HandlerOwner, HandlerTenure

SHOP = AgentRef("shop", "shop")


class Sold(DomainEvent, event_type="sales.sold"):
    amount: int


class Sum(BaseProjection[int]):
    """What was sold."""

    name = "sum"
    topics = ("events.sales",)
    events = (Sold,)

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key

    def initial_state(self) -> int:
        return 0

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["amount"])


class Watcher(BaseHandler):
    """Makes nothing; `seen` has the keys that it was given, each with the state before."""

    agent_type = "watcher"
    state = Sum
    seen: ClassVar[list[tuple[str | None, int]]] = []

    def handle(self, event: EventEnvelope, state: int) -> Iterable[DomainEvent]:
        self.seen.append((event.partition_key, state))
        return []


async def append_by_key(log: EventLog, events: Iterable[tuple[str, DomainEvent]]) -> None:
    """Append events of the shop at once, each under its key."""
    clock = SystemClock()
    trace = TraceContext(clock.token(16), clock.token(8))
    await log.append(
        [event.to_envelope(SHOP, trace, partition_key=key, clock=clock) for key, event in events]
    )


async def sell(log: EventLog, *keys: str) -> None:
    """Append one sale of amount 1 for each key."""
    await append_by_key(log, [(key, Sold(amount=1)) for key in keys])


class Here:
    """The group leaves the partition to this process, and reads it from where it is told to."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    async def tenure(self) -> None:
        return None

    async def still_here(self) -> bool:
        return True

    async def start_at(self, offset: int) -> None:
        self.starts.append(offset)


def handler_owner(
    log: EventLog,
    handler: type[BaseHandler],
    home: Path,
    *,
    domain: str,
    here: Here | None = None,
    progress: Callable[[str], None] = lambda line: None,
    on_change: Callable[[], None] = lambda: None,
) -> HandlerOwner:
    """Of partition 0 of the events of a domain; the handler's journal has to be there."""
    name = handler.agent_type
    reference = AgentRef(name, name, "local", "1")
    context = AgentContext(home=home, log=log, clock=SystemClock(), progress=progress, agent_ref=reference)
    agent = handler(handler.Options(), context)
    place = TopicPartition(log.topology.events(domain), 0)
    assignment: Any = here or Here()

    def failed(error: BaseException) -> None:
        raise error

    return tenure.handler_owner(log, agent, place, assignment, home, on_failure=failed, on_change=on_change)


def tenure_of(owner: HandlerOwner) -> HandlerTenure:
    """The tenure of a partition that is owned."""
    assert owner.tenure is not None
    return owner.tenure
