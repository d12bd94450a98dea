"""Hostile bytes: each refused by field and reason, at once, and without spending memory on it.

The bounds are generous: they are there to tell milliseconds from minutes, and kilobytes from gigabytes.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from noesium_stream.errors import EventValidationError, UnknownSchemaError
from noesium_stream.event import EnvelopeCodec
from noesium_stream.event.codec.avro_schema import fingerprint
from noesium_stream.event.codec.other_schemas import WriterSchema
from noesium_stream.event.limits import MAX_ITEMS, MAX_JSON_DEPTH, MAX_RECORD_BYTES
from tests.support.envelopes import envelope, open_catalogue, reference_bytes, with_body

CODEC = EnvelopeCodec(open_catalogue())
EVENT = envelope()
SOUND = reference_bytes(EVENT)
HEADER = SOUND[:10]
LONG_OF_10_BYTES = b"\xff" * 9 + b"\x01"


def refused(data: bytes, codec: EnvelopeCodec = CODEC) -> EventValidationError:
    """Why `data` is refused, after a check that it did not cost anything.

    Time is this thread's own, and not measured while memory is traced.
    """
    before_s = time.thread_time()
    with pytest.raises(EventValidationError) as caught:
        codec.decode(data)
    elapsed_s = time.thread_time() - before_s
    tracemalloc.start()
    try:
        with pytest.raises(EventValidationError):
            codec.decode(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert elapsed_s < 0.2
    # orjson's parser takes twelve times the text at once.
    assert peak < 2_000_000 + 16 * len(data)
    assert caught.value.field
    return caught.value


def test_truncation_at_every_byte_is_refused() -> None:
    rich = reference_bytes(envelope(extensions={"x": 1}, stream_sequence=3, stream_final=True, ttl_ms=5))
    for data in (SOUND, rich):
        for length in range(len(data)):
            with pytest.raises(EventValidationError) as caught:
                CODEC.decode(data[:length])
            assert caught.value.field


def test_trailing_bytes_are_refused() -> None:
    for tail in (b"\x00", b"\x00\x00\x00\x00", SOUND):
        error = refused(SOUND + tail)
        assert error.field == "value"
        assert "follow the end" in error.reason


def test_an_unknown_fingerprint_is_refused() -> None:
    error = refused(b"\xc3\x01" + bytes(8) + SOUND[10:])
    assert isinstance(error, UnknownSchemaError)
    assert "0000000000000000" in error.reason


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\xc3", b"\xc3\x01", b"\xc3\x02" + SOUND[2:], b"{}", b"\x00" * 40]
)
def test_bytes_of_another_format_are_refused(data: bytes) -> None:
    assert isinstance(refused(data), UnknownSchemaError)


def test_a_negative_length_is_refused() -> None:
    error = refused(HEADER + b"\x01" + SOUND[11:])
    assert error.field == "spec_version"
    assert "negative" in error.reason


def test_an_enormous_length_is_refused() -> None:
    error = refused(HEADER + LONG_OF_10_BYTES[:-1].replace(b"\xff", b"\xfe", 1) + b"\x01" + SOUND[11:])
    assert error.field == "spec_version"
    at = SOUND.index(b'{"text"') - 1 - (1 if SOUND[SOUND.index(b'{"text"') - 1] < 0x80 else 0)
    error = refused(SOUND[:at] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")
    assert error.field == "payload"


def test_an_over_long_number_is_refused() -> None:
    assert "64 bits" in refused(HEADER + b"\xff" * 100).reason
    assert "64 bits" in refused(HEADER + b"\xff" * 1_000_000).reason


def test_a_number_that_is_not_in_its_shortest_form_is_refused() -> None:
    assert SOUND[10] == 10
    error = refused(HEADER + b"\x8a\x00" + SOUND[11:])
    assert error.field == "spec_version"
    assert "shortest" in error.reason


def test_a_union_branch_that_does_not_exist_is_refused() -> None:
    data = bytearray(SOUND)
    data[-2] = 4
    error = refused(bytes(data))
    assert error.field == "signature"
    assert "branch 2" in error.reason


def test_a_boolean_that_is_neither_is_refused() -> None:
    data = reference_bytes(envelope(stream_final=True))
    error = refused(data[:-3] + b"\x02" + data[-2:])
    assert error.field == "stream_final"


def test_invalid_utf8_is_refused() -> None:
    assert refused(SOUND.replace(b"researcher", b"rese\xff\xfeher", 1)).field == "producer.agent_id"
    assert refused(SOUND.replace("ü".encode(), b"\xed\xa0", 1)).field == "payload"


@pytest.mark.parametrize("count", [MAX_ITEMS + 1, 10_000_000, 2**40, 2**62])
def test_a_map_that_announces_too_many_elements_is_refused(count: int) -> None:
    error = refused(SOUND[:-1] + zigzag(count))
    assert error.field == "extensions"
    assert refused(SOUND[:-1] + zigzag(-count) + zigzag(8)).field == "extensions"


def test_many_blocks_count_together() -> None:
    block = zigzag(2) + b"\x02a\x021\x02b\x021"
    assert "twice" in refused(SOUND[:-1] + block * 20_000 + b"\x00").reason
    blocks = b"".join(
        zigzag(1) + zigzag(len(str(n))) + str(n).encode() + b"\x021" for n in range(MAX_ITEMS + 1)
    )
    assert "announces more" in refused(SOUND[:-1] + blocks + b"\x00").reason


@pytest.mark.parametrize(
    "items",
    ["null", {"type": "fixed", "name": "Empty", "size": 0}, {"type": "record", "name": "E", "fields": []}],
)
def test_elements_without_bytes_do_not_expand_in_a_foreign_writer_schema(items: Any) -> None:
    schema = {
        "type": "record",
        "name": "Bomb",
        "fields": [{"name": "a", "type": {"type": "array", "items": items}}],
    }
    codec = EnvelopeCodec(open_catalogue(), writer_schemas=[schema])
    header = b"\xc3\x01" + fingerprint(schema).to_bytes(8, "little")
    error = refused(header + zigzag(1_000_000_000) + b"\x00", codec)
    assert error.field == "a"
    assert "announces" in error.reason
    assert "announces" in refused(header + (zigzag(400) * 50_000) + b"\x00", codec).reason


def test_a_recursive_writer_schema_does_not_exhaust_the_stack() -> None:
    schema = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "next", "type": ["null", "Node"]}],
    }
    codec = EnvelopeCodec(open_catalogue(), writer_schemas=[schema])
    header = b"\xc3\x01" + fingerprint(schema).to_bytes(8, "little")
    assert "deeper" in refused(header + b"\x02" * 100_000 + b"\x00", codec).reason


def test_a_writer_schema_that_holds_other_things_is_refused() -> None:
    schema = {
        "type": "record",
        "name": "EventEnvelope",
        "fields": [{"name": "event_id", "type": "string"}, {"name": "payload", "type": "long"}],
    }
    codec = EnvelopeCodec(open_catalogue(), writer_schemas=[schema])
    header = b"\xc3\x01" + fingerprint(schema).to_bytes(8, "little")
    assert refused(header + b"\x02x" + zigzag(2**50), codec).field == "payload"


def test_types_of_one_name_in_two_namespaces_are_told_apart() -> None:
    def inner(namespace: str, avro_type: str) -> Any:
        return {
            "type": "record",
            "name": "X",
            "namespace": namespace,
            "fields": [{"name": "v", "type": avro_type}],
        }

    schema = {
        "type": "record",
        "name": "R",
        "namespace": "b",
        "fields": [
            {"name": "first", "type": inner("a", "null")},
            {"name": "second", "type": inner("b", "string")},
            {"name": "third", "type": "X"},
        ],
    }
    reader = WriterSchema(schema)
    record = {"first": {"v": None}, "second": {"v": "s"}, "third": {"v": "t"}}
    data = reader.write(record)
    assert reader.read(data, 0) == record
    with pytest.raises(EventValidationError, match="bytes are announced") as caught:
        reader.read(data[:-1], 0)
    assert caught.value.field == "third.v"


def test_a_writer_schema_that_is_no_record_is_refused() -> None:
    with pytest.raises(UnknownSchemaError, match="record"):
        WriterSchema("string")
    with pytest.raises(UnknownSchemaError, match="Avro"):
        WriterSchema({"type": "record", "name": "X", "fields": [{"name": "a", "type": "nothing"}]})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a":1,"a":2}', "twice"),
        ('{"b":{"a":1,"a":1}}', "twice"),
        ('{"a":NaN}', "not JSON"),
        ('{"a":Infinity}', "not JSON"),
        ('{"a":1e999}', "not JSON"),
        ('{"a":123456789012345678901234567890}', "64 bits"),
        ('{"a":18446744073709551616}', "64 bits"),
        ('{"a":"\\ud800"}', "not JSON"),
        ('{"a":1', "not JSON"),
        ('{"a":1}}', "not JSON"),
        ("", "not JSON"),
        ("[1]", "not an object"),
        ("null", "not an object"),
        ('{"a":' + "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH + "}", "deeper"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "deeper"),
        ("[" * 1_000_000, "not JSON"),
        ('{"a":' * 500_000, "not JSON"),
    ],
)
def test_json_text_that_is_not_sound_is_refused(text: str, reason: str) -> None:
    error = refused(with_body(EVENT, payload=text))
    assert error.field == "payload"
    assert reason in error.reason
    assert len(str(error)) < 500
    assert refused(with_body(EVENT, metadata=text)).field == "metadata"
    assert refused(with_body(EVENT, extensions={"x": text + " !"})).field == "extensions.x"


def test_json_of_the_greatest_depth_passes_both_ways() -> None:
    value: Any = 1
    for _ in range(MAX_JSON_DEPTH - 1):
        value = [value]
    event = envelope(payload={"a": value})
    assert CODEC.decode(CODEC.encode(event)) == event
    with pytest.raises(EventValidationError, match="deeper"):
        CODEC.encode(envelope(payload={"a": [value]}))


def test_the_fields_of_the_envelope_are_checked_in_bytes_as_well() -> None:
    assert refused(with_body(EVENT, event_id="0" * 36)).field == "event_id"
    assert refused(with_body(EVENT, event_type="Not.Dotted")).field == "event_type"
    assert refused(with_body(EVENT, timestamp=-5)).field == "timestamp"
    assert refused(with_body(EVENT, ttl_ms=-1)).field == "ttl_ms"
    assert refused(with_body(EVENT, correlation_id="")).field == "correlation_id"
    assert refused(with_body(EVENT, stream_sequence=2**60)).field == "stream_sequence"
    assert refused(with_body(EVENT, extensions={"event_id": "1"})).field == "extensions.event_id"
    trace = {"trace_id": "0" * 32, "span_id": "0" * 16, "parent_span_id": None, "depth": -1}
    assert refused(with_body(EVENT, trace=trace)).field == "trace.depth"
    producer = {"agent_id": "", "agent_type": "b", "runtime_id": "c", "instance_id": ""}
    assert refused(with_body(EVENT, producer=producer)).field == "producer.agent_id"


def test_a_negative_time_is_refused_beside_times_that_are_remembered() -> None:
    assert CODEC.decode(SOUND) == EVENT
    at = SOUND.index(b"b7ad6b7169203331") + 16
    data = bytearray(SOUND)
    data[at + 1] |= 1
    assert refused(bytes(data)).field == "timestamp"


def test_a_block_of_another_size_than_announced_is_refused() -> None:
    assert CODEC.decode(SOUND[:-1] + b"\x01\x08\x02x\x027\x00").extensions == {"x": 7}
    for size in (b"\x06", b"\x0a", b"\x07", b"\x00"):
        error = refused(SOUND[:-1] + b"\x01" + size + b"\x02x\x027\x00")
        assert error.field == "extensions"


def test_an_event_beyond_the_largest_size_is_refused_both_ways() -> None:
    big = envelope(payload={"text": "x" * MAX_RECORD_BYTES})
    with pytest.raises(EventValidationError, match=f"{MAX_RECORD_BYTES:,}"):
        CODEC.encode(big)
    assert "more than" in refused(HEADER + bytes(MAX_RECORD_BYTES + 20)).reason


def test_what_is_not_bytes_is_refused() -> None:
    with pytest.raises(EventValidationError, match="str"):
        CODEC.decode("text")  # type: ignore[arg-type]
    with pytest.raises(EventValidationError, match="NoneType"):
        CODEC.decode(None)  # type: ignore[arg-type]


def zigzag(value: int) -> bytes:
    number = value << 1 ^ value >> 63
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
