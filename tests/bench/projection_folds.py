"""The projections that are measured."""

from __future__ import annotations

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.projection.base import BaseProjection
from tests.bench.events import DOMAIN, EVENTS, ONE_KIND


class _Keyed(BaseProjection[int]):
    topics = (f"events.{DOMAIN}*",)
    events = tuple(EVENTS)

    def initial_state(self) -> int:
        return 0

    def key(self, event: EventEnvelope) -> str | None:
        return event.partition_key


class Count(_Keyed):
    """Events per key, by the records' headers."""

    name = "count"
    headers_only = True

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + 1


class Sum(_Keyed):
    """A field of the payload per key; envelope and payload are decoded and validated."""

    name = "sum"

    def apply(self, state: int, event: EventEnvelope) -> int:
        return state + int(event.payload["duration_ms"])


class SumOfOneKind(Sum):
    """The same of one type of ten."""

    name = "sum-of-one-kind"
    event_types = (ONE_KIND,)


class CountOfOneKind(Count):
    """The same of one type of ten."""

    name = "count-of-one-kind"
    event_types = (ONE_KIND,)


MEASURED: dict[str, type[_Keyed]] = {
    projection.name: projection for projection in (Count, Sum, SumOfOneKind, CountOfOneKind)
}
