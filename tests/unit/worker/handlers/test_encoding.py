"""What a handler makes is encoded in one pass to the very bytes that the long way gives, or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ConfigDict, Field, field_serializer

from noesium_stream.clock import VirtualClock
from noesium_stream.errors import EventValidationError, RecordTooLargeError
from noesium_stream.event import AgentRef, Catalogue, EventEnvelope, TraceContext
from noesium_stream.event.codec.codec import EnvelopeCodec
from noesium_stream.event.domain_event import DomainEvent, simple_shape
from noesium_stream.event.envelope_maker import EnvelopeMaker
from noesium_stream.event.limits import MAX_RECORD_BYTES
from noesium_stream.log import open_log
from noesium_stream.log.encoded_event import EncodedEvent
from noesium_stream.log.port import EventLog, Outgoing
from noesium_stream.log.prepare import MAX_JOURNAL_BYTES, header_text, prepare_outgoing
from noesium_stream.log.topics import partition_of
from noesium_stream.worker.handlers.encoding import Encoding

ME = AgentRef("straße 7", "adder", "local", "1")
TOPIC = "ns.events.sales"


class Summed(DomainEvent, event_type="sales.summed"):
    tool: str
    total: int
    share: float | None = None


class Simple(DomainEvent, event_type="sales.simple"):
    """Fields of one simple type each: such events are valid by that."""

    tool: str
    total: int
    paid: bool = True


class Listed(DomainEvent, event_type="sales.listed"):
    """Not plain: it takes pydantic to write it."""

    lines: list[int]


class Short(DomainEvent, event_type="sales.short"):
    LEFT_OUT: ClassVar = ("note",)
    note: str | None = None


KINDS: list[DomainEvent] = [Summed(tool="a", total=1), Simple(tool="a", total=1), Listed(lines=[]), Short()]


class Bare:
    """As much of a log as it takes."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        for kind in KINDS:
            self.catalogue.register(type(kind))
        self.decoder = EnvelopeCodec(self.catalogue)


def cause(correlation_id: str | None = None, depth: int = 3, parent: str | None = None) -> EventEnvelope:
    clock = VirtualClock(seed=9)
    trace = TraceContext(clock.token(16), clock.token(8), parent, depth)
    made = Summed(tool="t", total=1)
    return made.to_envelope(ME, trace, None, correlation_id, partition_key="k", clock=clock)


def encoding(log: Any, prefix: str = "adder/") -> Encoding:
    """One that has learned all kinds."""
    clock = VirtualClock()
    encoding, making = Encoding(ME, clock, prefix, log), EnvelopeMaker(ME, clock)
    for kind in KINDS:
        encoding.learn(kind, making.of(kind, cause(), "k", "i"), TOPIC, 8)
    encoding.begin()
    return encoding


def the_long_way(log: Any, made: DomainEvent, event: EventEnvelope, key: str, encoded: Any) -> EventEnvelope:
    """The same event by itself, with the id and the span that were given to the other one."""
    trace = TraceContext(event.trace.trace_id, encoded.trace.span_id, event.trace.span_id, event.trace.depth)
    return made.to_envelope(
        ME,
        trace,
        event.event_id,
        event.correlation_id or event.event_id,
        partition_key=key,
        idempotency_key=f"adder/{event.event_id}/4",
        clock=VirtualClock(),
    ).replace(event_id=encoded.event_id)


LOG = Bare()
ENCODING = encoding(LOG)


@settings(max_examples=300)
@given(
    st.one_of(
        st.builds(
            Summed, tool=st.text(), total=st.integers(-(2**63), 2**64 - 1), share=st.floats(0, 1) | st.none()
        ),
        st.builds(Simple, tool=st.text(), total=st.integers(-(2**63), 2**64 - 1), paid=st.booleans()),
        st.builds(Simple, tool=st.text(), total=st.just(1), more=st.none() | st.integers(0, 9) | st.text()),
        st.builds(Listed, lines=st.lists(st.integers(0, 9), max_size=3)),
        st.builds(Short, note=st.none() | st.text()),
    ),
    st.text(st.characters(codec="ascii"), min_size=1, max_size=200),
    st.none() | st.text(st.characters(codec="ascii"), min_size=1, max_size=200),
    st.integers(0, 2047),
)
def test_the_bytes_the_headers_and_the_place_are_those_of_the_long_way(
    made: DomainEvent, key: str, correlation_id: str | None, depth: int
) -> None:
    event = cause(correlation_id, depth)
    outgoing = ENCODING.of(made, event, key, 4)
    assert outgoing is not None
    encoded: Any = outgoing.envelope
    alone = the_long_way(LOG, made, event, key, encoded)
    assert (encoded.value, encoded.text) == (LOG.decoder.encode(alone), header_text(alone))
    assert outgoing == (encoded, TOPIC, partition_of(key, 8), key, ())
    both = [outgoing, Outgoing(alone, TOPIC, partition_of(key, 8), key)]
    once, again = prepare_outgoing(both, LOG.decoder)
    assert once == again


@pytest.mark.parametrize(
    ("made", "key", "correlation_id", "depth"),
    [
        pytest.param(Summed(tool="a", total=1), None, None, 3, id="no key"),
        pytest.param(Summed(tool="a", total=1), "", None, 3, id="an empty key"),
        pytest.param(Summed(tool="a", total=1), "ß", None, 3, id="a key that is not ASCII"),
        pytest.param(Summed(tool="a", total=1), "k" * 2048, None, 3, id="a long key"),
        pytest.param(Summed(tool="a", total=1), 7, None, 3, id="a key that is no text"),
        pytest.param(Summed(tool="a", total=1), "k", "ß", 3, id="a correlation that is not ASCII"),
        pytest.param(Summed(tool="a", total=1), "k", "c" * 2048, 3, id="a long correlation"),
        pytest.param(Summed(tool="a", total=1), "k", None, 2048, id="deep"),
        pytest.param(Summed(tool="\ud800", total=1), "k", None, 3, id="half a surrogate pair"),
        pytest.param(Summed(tool="a", total=2**64), "k", None, 3, id="a number that is too large"),
        pytest.param(Summed(tool="a" * MAX_RECORD_BYTES, total=1), "k", None, 3, id="too large"),
        pytest.param(Summed.model_construct(tool=1, total=1), "k", None, 3, id="not valid"),
        pytest.param(
            Summed.model_construct(tool="a", total=1, share=float("nan")), "k", None, 3, id="not a number"
        ),
        pytest.param(Simple(tool="\ud800", total=1), "k", None, 3, id="simple, half a surrogate pair"),
        pytest.param(Simple(tool="a", total=2**64), "k", None, 3, id="simple, a number that is too large"),
        pytest.param(Simple.model_construct(tool=1, total=1, paid=True), "k", None, 3, id="simple, no text"),
        pytest.param(Simple.model_construct(tool="a", total=True, paid=True), "k", None, 3, id="true for 1"),
        pytest.param(Simple.model_construct(tool="a", total=None, paid=True), "k", None, 3, id="no number"),
        pytest.param(Simple.model_construct(tool="a", paid=True), "k", None, 3, id="a field is not there"),
    ],
)
def test_what_is_not_usual_goes_the_long_way(
    made: DomainEvent, key: Any, correlation_id: str | None, depth: int
) -> None:
    assert ENCODING.of(made, cause(correlation_id, depth), key, 4) is None


@pytest.mark.parametrize("number", [0, 63, 64, 1_000_000])
def test_the_number_of_an_event_among_those_of_its_cause_is_in_its_key(number: int) -> None:
    made: Any = ENCODING.of(KINDS[0], cause(), "k", number)
    assert made.envelope.idempotency_key == f"adder/{cause().event_id}/{number}"


def test_a_kind_that_was_never_made_goes_the_long_way() -> None:
    assert Encoding(ME, VirtualClock(), "adder/", LOG).of(KINDS[0], cause(), "k", 0) is None  # type: ignore[arg-type]


def test_a_schema_that_is_registered_later_counts() -> None:
    log: Any = Bare()
    one = encoding(log)
    assert one.of(Summed(tool="a", total=1), cause(), "k", 0) is not None

    class Stricter(DomainEvent, event_type="sales.summed", version="1.1.0"):
        tool: str
        total: int
        share: float | None = None

    log.catalogue.register(Stricter)
    assert one.of(Summed(tool="a", total=1), cause(), "k", 0) is not None
    assert one.of(Summed.model_construct(tool=1, total=1), cause(), "k", 0) is None


def test_events_of_a_simple_class_are_written_in_the_order_of_their_fields_or_as_they_were_made() -> None:
    given: list[Any] = [
        Simple(total=1, tool="a"),
        Simple.model_construct(None, total=1, tool="a", paid=False),
        Simple.model_validate({"tool": "a", "total": 1, "paid": False, "more": [1]}),
    ]
    for made in given:
        outgoing: Any = ENCODING.of(made, cause(), "k", 0)
        assert list(outgoing.envelope.payload.items()) == list(made.payload().items())


STRING = {"type": "string"}
SIMPLE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tool": STRING,
        "total": {"type": "integer"},
        "paid": {"type": "boolean", "default": True},
    },
    "required": ["tool", "total"],
}


@pytest.mark.parametrize(
    "changed",
    [
        {"maxProperties": 2},
        {"required": ["tool", "more"]},
        {"type": ["object", "null"]},
        {"properties": {**SIMPLE["properties"], "tool": {"type": "string", "minLength": 2}}},
        {"properties": {**SIMPLE["properties"], "tool": {"type": ["string", "null"]}}},
        {"properties": {**SIMPLE["properties"], "tool": {"const": "b"}}},
        {"properties": {**SIMPLE["properties"], "tool": True}},
        {"properties": {"tool": STRING, "total": {"type": "integer"}}},
        {"properties": {"total": {"type": "integer"}, "tool": STRING, "paid": {"type": "boolean"}}},
        {"properties": {**SIMPLE["properties"], "total": {"type": "number"}}},
    ],
)
def test_a_schema_that_asks_for_more_than_types_is_asked_itself(changed: dict[str, Any]) -> None:
    assert simple_shape(Simple, SIMPLE) == (["tool", "total", "paid"], [str, int, bool])
    assert simple_shape(Simple, {**SIMPLE, **changed}) is None


@pytest.mark.filterwarnings("ignore:`json_encoders` is deprecated")
def test_a_class_that_pydantic_has_to_write_is_not_simple() -> None:
    class Trimmed(Simple):
        @field_serializer("tool")
        def trimmed(self, tool: str) -> str:
            return tool.strip()

    class Weighed(Simple):
        total: float  # pydantic writes 2 as 2.0

    class Shouted(Simple):
        model_config = ConfigDict(json_encoders={str: str.upper})

    class Sometimes(Simple):
        tool: str = Field(exclude_if=lambda tool: tool == "a")

    for one in (Trimmed, Weighed, Shouted, Sometimes):
        assert simple_shape(one, SIMPLE) is None


def test_a_schema_that_takes_everything_is_asked_itself() -> None:
    everything: Any = True
    assert simple_shape(Simple, everything) is None


def test_what_the_catalogue_of_the_log_asks_for_counts_and_not_what_the_class_says() -> None:
    log: Any = Bare()
    log.catalogue = Catalogue()
    strict = {**SIMPLE, "properties": {**SIMPLE["properties"], "tool": {"type": "string", "minLength": 2}}}
    log.catalogue.register_schema("sales.simple", "1.0.0", strict)
    log.decoder = EnvelopeCodec(log.catalogue)
    clock = VirtualClock()
    one = Encoding(ME, clock, "adder/", log)
    one.learn(KINDS[1], EnvelopeMaker(ME, clock).of(KINDS[1], cause(), "k", "i"), TOPIC, 8)
    one.begin()
    assert one.of(Simple(tool="ab", total=1), cause(), "k", 0) is not None
    assert one.of(Simple(tool="a", total=1), cause(), "k", 0) is None


def test_events_of_a_simple_class_are_judged_by_a_schema_that_is_registered_later() -> None:
    log: Any = Bare()
    one, made = encoding(log), Simple(tool="a", total=1)
    assert one.of(made, cause(), "k", 0) is not None
    strict = {**SIMPLE, "properties": {**SIMPLE["properties"], "tool": {"type": "string", "minLength": 2}}}
    log.catalogue.register_schema("sales.simple", "1.0.1", strict)
    one.begin()
    assert one.of(made, cause(), "k", 0) is None
    with pytest.raises(EventValidationError, match="shorter than 2"):
        one.alone(made, cause(), "k", 0)


def test_no_two_events_have_the_same_id_or_span() -> None:
    one = encoding(LOG)
    made: list[Any] = [one.of(KINDS[0], cause(), "k", 0) for _ in range(300)]
    assert len({m.envelope.event_id for m in made}) == len({m.envelope.trace.span_id for m in made}) == 300


def test_a_moment_later_events_say_so() -> None:
    clock = VirtualClock()
    one = Encoding(ME, clock, "adder/", LOG)  # type: ignore[arg-type]
    one.learn(KINDS[0], EnvelopeMaker(ME, clock).of(KINDS[0], cause(), "k", "i"), TOPIC, 8)
    for _ in range(2):
        clock.advance(1.5)
        one.begin()
        made: Any = one.of(KINDS[0], cause(), "k", 0)
        assert made.envelope.timestamp_ms == clock.now_ms()
        assert made.envelope.text == header_text(LOG.decoder.decode(made.envelope.value))


def test_an_encoded_event_is_read_like_any_other() -> None:
    made: Any = ENCODING.of(KINDS[0], cause(), "k", 0)
    event: Any = made.envelope
    assert isinstance(event, EncodedEvent)
    assert (event.event_type, event.payload["tool"], event.partition_key) == ("sales.summed", "a", "k")
    assert event.causation_id == cause().event_id
    with pytest.raises(AttributeError):
        _ = event.nothing


def test_an_encoded_event_that_a_journal_cannot_hold_is_refused() -> None:
    made: Any = ENCODING.of(KINDS[0], cause(), "k", 0)
    headers = (("more", b"x" * MAX_JOURNAL_BYTES),)
    with pytest.raises(RecordTooLargeError, match=r"sales\.summed"):
        prepare_outgoing([made._replace(headers=headers)], LOG.decoder)


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = await open_log("memory://")
    for kind in KINDS:
        log.catalogue.register(type(kind))
    yield log
    await log.close()


async def test_a_writer_takes_both_and_a_reader_cannot_tell(log: EventLog) -> None:
    topic = log.topology.events("sales")
    await log.ensure_topics([log.topology.spec(topic)])
    one, making = Encoding(ME, VirtualClock(), "adder/", log), EnvelopeMaker(ME, VirtualClock())
    first = making.of(KINDS[0], cause(), "k", "adder/0")
    one.learn(KINDS[0], first, topic, 4)
    one.begin()
    second = one.of(Summed(tool="b", total=2), cause(), "k", 1)
    assert second is not None
    writer = await log.writer("w")
    await writer.commit([Outgoing(first, topic, second.partition, "k"), second])
    found = [record async for record in log.read(topic, {}, until=await log.end(topic))]
    assert [record.envelope.payload["tool"] for record in found] == ["a", "b"]
    assert [name for name, _ in found[0].headers] == [name for name, _ in found[1].headers]
    wrong = making.of(Summed.model_construct(tool=1, total=1), cause(), "k", "adder/1")
    with pytest.raises(EventValidationError):
        await writer.commit([second, Outgoing(wrong, topic, 0, "k")])
    await writer.close()
