"""Events of the tests' own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noesium_stream.clock import Clock
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from noesium_stream.event.standard.catalogue import standard_catalogue
from noesium_stream.log.port import Outgoing

PRODUCER = AgentRef("tester", "tester", "local", "tests")
TRACE = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


class Counted(DomainEvent, event_type="demo.counted"):
    n: int
    text: str = ""


class Noted(DomainEvent, event_type="demo.noted.twice"):
    n: int


class Sold(DomainEvent, event_type="shop.sold"):
    n: int


def catalogue() -> Catalogue:
    """The standard events and those of this module."""
    known = standard_catalogue()
    for event in (Counted, Noted, Sold):
        known.register(event)
    return known


def counted(n: int, key: str | None = None, *, clock: Clock | None = None, **fields: Any) -> EventEnvelope:
    """`demo.counted` number `n` for `key`; further fields are the envelope's, `text` the payload's."""
    event = Counted(n=n, text=fields.pop("text", ""))
    return event.to_envelope(PRODUCER, TRACE, partition_key=key, clock=clock, **fields)


def noted(n: int, key: str | None = None) -> EventEnvelope:
    """`demo.noted.twice` number `n` for `key`."""
    return Noted(n=n).to_envelope(PRODUCER, TRACE, partition_key=key)


def sold(n: int, key: str | None = None) -> EventEnvelope:
    """`shop.sold` number `n` for `key`."""
    return Sold(n=n).to_envelope(PRODUCER, TRACE, partition_key=key)


def outgoing(
    envelopes: Sequence[EventEnvelope], topic: str, partition: int, key: str = "run", **headers: bytes
) -> list[Outgoing]:
    """What a writer commits: these events into one partition."""
    return [Outgoing(envelope, topic, partition, key, tuple(headers.items())) for envelope in envelopes]
