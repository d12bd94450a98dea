"""Fast creation of many envelopes that are caused by other events, for one producer.

Decision record: `DomainEvent.to_envelope` takes 6 µs. Most of that checks known facts: that a checked
producer is still valid, that ids of this process's own clock are ids, that trace and key of a checked event
can be copied. Here a handler's event takes 1.5 µs. Anything not known to be valid is checked as usual.
"""

from __future__ import annotations

from typing import Any, Final, cast

from noesium_stream.clock import Clock
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EnvelopeDraft, EventEnvelope, check_envelope, text_is_sound
from noesium_stream.event.envelope_fields import SPEC_VERSION, AgentRef, TraceContext, TraceDraft

_SPANS: Final = 64
_SPAN_DIGITS: Final = 16


class EnvelopeMaker:
    """Creates events of one producer.

    Args:
        producer: the producer.
        clock: the source of ids and times.
    """

    def __init__(self, producer: AgentRef, clock: Clock) -> None:
        self._producer = producer
        self._clock = clock
        self._spans = ""
        self._span = 0
        self._kinds: dict[type[DomainEvent], tuple[str, str]] = {}
        """Types and versions by class, of those whose head was checked."""

    def of(
        self, made: DomainEvent, cause: EventEnvelope, partition_key: str | None, idempotency_key: str
    ) -> EventEnvelope:
        """Wrap the event `made`, caused by `cause`: its child in the trace, with its correlation id.

        Raises:
            EventValidationError: a field is malformed.
        """
        clock = self._clock
        at = self._span
        if at >= len(self._spans):
            at, self._spans = 0, clock.token(_SPANS * _SPAN_DIGITS // 2)
        self._span = end = at + _SPAN_DIGITS
        trace = cause.trace
        kind = self._kinds.get(type(made))
        event: Any = EnvelopeDraft()
        event.spec_version = SPEC_VERSION
        event.event_id = clock.uuid7()
        event.event_type, event.event_version = kind or (made.event_type(), made.event_version())
        event.timestamp_ms = clock.now_ms()
        event.producer = self._producer
        child: Any = TraceDraft()
        child.trace_id, child.span_id = trace.trace_id, self._spans[at:end]
        child.parent_span_id, child.depth = trace.span_id, trace.depth
        child.__class__ = TraceContext
        event.trace = child
        event.causation_id = event_id = cause.event_id
        event.correlation_id = cause.correlation_id or event_id
        event.idempotency_key = idempotency_key
        event.partition_key = partition_key
        event.payload = made.payload()
        event.metadata = {}
        event.extensions = {}
        event.ttl_ms = event.signature = event.stream_sequence = event.stream_final = None
        event.__class__ = EventEnvelope
        if kind is None or not (partition_key is cause.partition_key or text_is_sound(partition_key)):
            check_envelope(event)
            self._kinds[type(made)] = (event.event_type, event.event_version)
        return cast("EventEnvelope", event)
