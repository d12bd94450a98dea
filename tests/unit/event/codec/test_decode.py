"""One look at the front of an event, beside reading it field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from noesium_stream.errors import EventValidationError
from noesium_stream.event.codec import decode as wire_read
from noesium_stream.event.codec.decode import decode_body
from noesium_stream.event.envelope import AgentRef, EventEnvelope, TraceContext
from tests.support.envelopes import envelope, reference_bytes

Reader = Callable[[bytes, int], EventEnvelope | None]

ROOT = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", None, 0)
USUAL = {
    "with a parent span": envelope(),
    "a root, with all texts": envelope(
        trace=ROOT, correlation_id="c", idempotency_key="k" * 63, partition_key="order 17", metadata={}
    ),
    "bare": envelope(trace=ROOT, causation_id=None, partition_key=None, payload={}, metadata={}),
    "with a large payload": envelope(payload={"text": "x" * 9000}, metadata={}),
    "of a stream": envelope(stream_sequence=3, stream_final=True),
    "whose producer looks like ids": envelope(
        producer=AgentRef("01a2025e-7c48-7781-9951-e09809cc410e", ROOT.trace_id, ROOT.span_id, "")
    ),
}
UNUSUAL = {
    "a text that is not ASCII": envelope(partition_key="Grüße"),
    "a long text": envelope(idempotency_key="k" * 64),
    "a time to live": envelope(ttl_ms=5),
    "a deep trace": envelope(trace=TraceContext(ROOT.trace_id, ROOT.span_id, None, 64)),
    "a time far off": envelope(timestamp_ms=2**45),
}


def outcome(read: Reader, data: bytes) -> Any:
    """The event; None where it is not as expected; what is said of a JSON text."""
    try:
        return read(data, 10)
    except EventValidationError as error:
        return str(error)
    except (IndexError, UnicodeDecodeError, wire_read._Unusual):
        return None


@pytest.mark.parametrize("event", USUAL.values(), ids=USUAL)
def test_a_usual_event_is_read_at_one_look_once_its_like_was_read(event: EventEnvelope) -> None:
    data = reference_bytes(event)
    assert decode_body(data, 10) == event
    assert wire_read._usual(data, 10) == event


@pytest.mark.parametrize("event", UNUSUAL.values(), ids=UNUSUAL)
def test_an_unusual_event_is_read_field_by_field(event: EventEnvelope) -> None:
    data = reference_bytes(event)
    assert decode_body(data, 10) == event
    assert wire_read._usual(data, 10) is None


@pytest.mark.parametrize("event", [*USUAL.values(), *UNUSUAL.values()], ids=[*USUAL, *UNUSUAL])
def test_one_look_sees_nothing_that_reading_field_by_field_does_not(event: EventEnvelope) -> None:
    data = reference_bytes(event)
    decode_body(data, 10)
    seen = 0
    for changed in damaged(data):
        found = outcome(wire_read._usual, changed)
        if found is not None:
            seen += 1
            assert found == outcome(wire_read._decode, changed), changed
    assert seen or event in UNUSUAL.values()


def damaged(data: bytes) -> Iterator[bytes]:
    """Every value of every byte up to the payload, and of some of the last; each byte left out, or twice."""
    front = min(len(data), 420)
    for at in [*range(10, front), *range(max(front, len(data) - 40), len(data))]:
        for value in range(256):
            yield data[:at] + bytes((value,)) + data[at + 1 :]
        yield data[:at] + data[at + 1 :]
        yield data[:at] + data[at : at + 1] + data[at:]


def test_a_length_that_is_not_in_its_shortest_form_is_not_expected() -> None:
    sound = reference_bytes(USUAL["bare"])
    long = sound.replace(b"\x04{}\x04{}", b"\x84\x00{}\x04{}")
    assert long != sound
    decode_body(sound, 10)
    assert outcome(wire_read._usual, long) is None
    assert decode_body(long, 10) is None
