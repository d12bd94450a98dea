"""One-pass encoding of the events that a handler makes, while the causing event is at hand.

Decision record: making an envelope, routing, validating and encoding it and writing its headers took 77,000
instructions for each event, as many as decoding and folding the causing event. Most of them went into parts
that are the same for an event class, a producer or a moment, and into intermediate objects; those of two
thousand events were in memory until their commit. So only the first event of a class takes that long way,
which checks everything. Later events of the class are encoded here, from the parts that are known by then.
The parts that differ from event to event are checked here; an event with an unusual part takes the long way,
and is refused there if it is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from noesium_stream.agent.request import AgentRequest
from noesium_stream.clock import Clock
from noesium_stream.errors import EventValidationError
from noesium_stream.event.codec.codec import EnvelopeCodec, child_body, head_of, long_text, short_text
from noesium_stream.event.domain_event import DomainEvent, plain_payload, root_event, simple_shape
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.envelope_maker import EnvelopeMaker
from noesium_stream.event.payload.value import dump_json, dump_plain
from noesium_stream.log.encoded_event import encoded_event
from noesium_stream.log.port import EventLog, Outgoing, outgoing_of
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES, header_middle, header_text, too_large
from noesium_stream.log.topics import partition_of, record_key

_SPANS: Final = 64
_SPAN_BYTES: Final = 8
_KEYS: Final = 65_536
_NUMBERS: Final = tuple(f"/{number}" for number in range(64))


class _Kind:
    """The known parts of the events of one class."""

    def __init__(
        self,
        cls: type[DomainEvent],
        schema: Mapping[str, Any],
        event: EventEnvelope,
        frame: bytes,
        topic: str,
        partitions: int,
    ) -> None:
        self.plain = cls.payload is DomainEvent.payload and not cls.LEFT_OUT
        """Whether `plain_payload` may be used for the payload."""
        self.names, self.types = (simple_shape(cls, schema) if self.plain else None) or ([], [])
        """Names and types of the fields of a valid payload; empty: the catalogue validates each payload."""
        self.event_type = event.event_type
        self.event_version = event.event_version
        self.payload: dict[str, Any] = {}
        """Payload of the current event; the catalogue validates it with type and version."""
        self.head = frame.decode("latin-1") + head_of(event)
        self.topic = topic
        self.partitions = partitions
        self.places: dict[str, tuple[str, int]] = {}
        """Encoded key and partition, by key."""


class Lone(NamedTuple):
    """An event that was made the long way and has no destination yet.

    Attributes:
        made: the handler's domain event.
        envelope: its envelope.
        encoded: its encoded event for the log; the envelope itself if only the log can encode it.
    """

    made: DomainEvent
    envelope: EventEnvelope
    encoded: EventEnvelope


class Encoding:
    """Encodes the events of one producer.

    Args:
        producer: the producer of the events.
        clock: source of ids and times.
        prefix: ASCII prefix of the idempotency keys; the id of the causing event and a number follow it.
        log: the log that the events go to; if its decoder is no `EnvelopeCodec`, all take the long way.
    """

    def __init__(self, producer: AgentRef, clock: Clock, prefix: str, log: EventLog) -> None:
        self._producer = producer
        self._clock = clock
        self._making = EnvelopeMaker(producer, clock)
        self._prefix = prefix
        self._kinds: dict[type[DomainEvent], _Kind] = {}
        self._spans: list[str] = []
        decoder = log.decoder
        self._codec = decoder if isinstance(decoder, EnvelopeCodec) and prefix.isascii() else None
        self._catalogue = log.catalogue
        self._changes = log.catalogue.changes
        self._validate: Callable[[Any], None] = log.catalogue.validate
        self._decode = decoder.decode
        self._at = self._middle = ""

    def begin(self) -> None:
        """Start a batch: its events get the present time, and the present catalogue validates them."""
        if self._changes != self._catalogue.changes:
            self._changes = self._catalogue.changes
            self._kinds.clear()
        now_ms = self._clock.now_ms()
        self._at, self._middle = long_text(now_ms), header_middle(self._producer, now_ms)

    def learn(self, made: DomainEvent, event: EventEnvelope, topic: str, partitions: int) -> None:
        """Learn the known parts of a class from a valid event, its topic and the number of partitions."""
        if self._codec is not None and not event.metadata and type(made) not in self._kinds:
            schema = self._catalogue.schema_for(event.event_type, event.event_version)
            self._kinds[type(made)] = _Kind(type(made), schema, event, self._codec.frame, topic, partitions)

    def of(self, made: DomainEvent, cause: EventEnvelope, key: str | None, number: int) -> Outgoing | None:
        """Encode `made`, the `number`th event caused by `cause`; None: it has to take the long way."""
        kind = self._kinds.get(type(made))
        if kind is None or type(key) is not str:
            return None
        place = kind.places.get(key) or self._place(kind, key)
        if place is None:
            return None
        # 1. The payload: valid, and JSON.
        fields, names = made.__dict__, kind.names
        try:
            if (
                names
                and [*fields] == names
                and [*map(type, fields.values())] == kind.types
                and not made.__pydantic_extra__
            ):
                text = dump_plain(fields)
            else:
                text = self._judged(kind, made)
        except (EventValidationError, TypeError):
            return None
        # 2. The body.
        if not self._spans:
            self._refill()
        event_id, span_id, cause_id = self._clock.uuid7(), self._spans.pop(), cause.event_id
        written, partition = place
        value = child_body(
            kind.head,
            event_id,
            span_id,
            self._at,
            cause,
            cause.correlation_id or cause_id,
            f"{self._prefix}{cause_id}{_NUMBERS[number] if number < len(_NUMBERS) else f'/{number}'}",
            written,
            text,
        )
        if value is None or len(value) + len(key) > MAX_JOURNAL_BYTES:
            return None
        # 3. The headers, and where it goes.
        event_type = kind.event_type
        headers = f"{event_type}\n{event_id}{self._middle}{cause.trace.trace_id}-{span_id}-01"
        event = encoded_event((event_type, value, headers, self._decode))
        return outgoing_of((event, kind.topic, partition, key, ()))

    def _judged(self, kind: _Kind, made: DomainEvent) -> bytes:
        """Validate the payload by the catalogue; return its JSON text."""
        payload = plain_payload(made) if kind.plain else None
        if payload is None:
            kind.payload = payload = made.payload()
            text = dump_json(payload, "payload")
        else:
            kind.payload = payload
            text = dump_plain(payload)
        self._validate(kind)
        return text

    def alone(self, made: DomainEvent, cause: EventEnvelope, key: str | None, number: int) -> Lone:
        """Make and encode `made`, the `number`th event caused by `cause`, the long way.

        Raises:
            EventValidationError: the event is invalid.
            RecordTooLargeError: the event is larger than any log takes.
        """
        if not isinstance(made, DomainEvent):
            reason = (
                f"gave a {type(made).__name__}, which is no event; return a list of events, or yield them"
            )
            raise EventValidationError("handle", reason)
        envelope = self._making.of(made, cause, key, f"{self._prefix}{cause.event_id}/{number}")
        return self._encoded(made, envelope)

    def request(self, request: AgentRequest, cause: EventEnvelope, number: int) -> Lone:
        """Make and encode a request: of a run of its own, which no other run has called.

        Raises:
            EventValidationError: it is invalid, or names no run.
            RecordTooLargeError: it is larger than any log takes.
        """
        run_id = getattr(request.event, "run_id", None)
        if not isinstance(run_id, str) or not run_id:
            raise EventValidationError("handle", f"requests {request.event!r:.80}, which names no run")
        envelope = root_event(
            request.event,
            self._producer,
            self._clock,
            causation_id=cause.event_id,
            correlation_id=run_id,
            partition_key=run_id,
            idempotency_key=f"{self._prefix}{cause.event_id}/{number}",
            metadata={"to": request.to},
        )
        return self._encoded(request.event, envelope)

    def _encoded(self, made: DomainEvent, envelope: EventEnvelope) -> Lone:
        if self._codec is None:
            return Lone(made, envelope, envelope)
        value = self._codec.encode(envelope)
        size = len(value) + len(record_key(envelope))
        if size > MAX_JOURNAL_BYTES:
            raise too_large(envelope, size)
        text = header_text(envelope)
        return Lone(made, envelope, encoded_event((envelope.event_type, value, text, self._decode)))

    def _place(self, kind: _Kind, key: str) -> tuple[str, int] | None:
        written = short_text(key)
        if written is None:
            return None
        if len(kind.places) >= _KEYS:
            kind.places.clear()
        place = kind.places[key] = written, partition_of(key, kind.partitions)
        return place

    def _refill(self) -> None:
        token = bytes.fromhex(self._clock.token(_SPANS * _SPAN_BYTES))
        self._spans = token.hex(" ", _SPAN_BYTES).split()  # a tenth of the time of slicing
