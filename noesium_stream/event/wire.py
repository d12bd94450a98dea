"""The body of the current envelope schema, written out in plain Python.

fastavro takes 26-33 µs to encode the envelope and 27-30 to decode it, most of it for building dicts
and looking fields up by name. What is below knows the one schema (`schema.ENVELOPE_SCHEMA`): each line
is a field of it, in its order. `tests/property/test_codec_bytes.py` proves it equal to fastavro, byte
for byte. Two tricks carry the speed:

- Kind and producer, the seven texts in front, repeat from event to event: their bytes are looked up in
  a bounded table instead of being made or parsed.
- Texts are joined as latin-1 characters, one per byte, and become bytes once.

`decode_body` refuses what it does not expect by returning None: whoever calls it then takes the careful
way (`guard`, fastavro), which either finds the name of the mistake or reads what is merely unusual.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from noesium_stream.errors import EventValidationError
from noesium_stream.event.envelope import EventEnvelope, trusted
from noesium_stream.event.json_text import parse_object
from noesium_stream.event.parts import (
    MAX_INT,
    MAX_TIMESTAMP_MS,
    UUID7,
    AgentRef,
    SignatureBlock,
    check_kind,
    check_producer,
    trusted_trace,
)

_NULL: Final = "\x00"
_SOME: Final = "\x02"
_SPAN: Final = "\x02 "
_CACHED: Final = 4096
_MAX_CACHED_BYTES: Final = 1024
_IDS: Final = re.compile(
    rf"H({UUID7})@([0-9a-f]{{32}}) ([0-9a-f]{{16}})(?:\x00|\x02 ([0-9a-f]{{16}}))".encode()
)
"""event_id, trace_id, span_id and parent_span_id with their lengths: 72, 64 and 32 are twice 36, 32, 16."""


class _Unusual(Exception):
    """Not what the written-out decoder expects; never leaves this package."""


@lru_cache(maxsize=4096)
def _long(value: int) -> str:
    """Events of one moment share their timestamp, and most have the lengths of others."""
    value = value << 1 ^ value >> 63
    out = ""
    while value > 0x7F:
        out += chr(value & 0x7F | 0x80)
        value >>= 7
    return out + chr(value)


_LENGTHS: Final = tuple(_long(length) for length in range(2048))
_heads: dict[tuple[str, str, str, AgentRef], str] = {}
_parsed: dict[bytes, tuple[str, str, str, AgentRef]] = {}
_times: dict[bytes, int] = {}


def _text(text: str) -> str:
    if not text.isascii():
        text = text.encode().decode("latin-1")
    length = len(text)
    return (_LENGTHS[length] if length < 2048 else _long(length)) + text


def encode_body(event: EventEnvelope, payload: bytes, metadata: bytes, extensions: dict[str, bytes]) -> bytes:
    """The Avro body of an event whose JSON parts are written already."""
    trace = event.trace
    parent = trace.parent_span_id
    head = _heads.get(kind := (event.spec_version, event.event_type, event.event_version, event.producer))
    if head is None:
        head = _remember_head(kind)
    cause, correlation = event.causation_id, event.correlation_id
    idempotency, partition = event.idempotency_key, event.partition_key
    front = (
        f"{head}H{event.event_id}@{trace.trace_id} {trace.span_id}"
        f"{_NULL if parent is None else _SPAN + parent}{_long(trace.depth)}{_long(event.timestamp_ms)}"
        f"{_NULL if cause is None else _SOME + _text(cause)}"
        f"{_NULL if correlation is None else _SOME + _text(correlation)}"
        f"{_NULL if idempotency is None else _SOME + _text(idempotency)}"
        f"{_NULL if partition is None else _SOME + _text(partition)}"
        f"{_NULL if event.ttl_ms is None else _SOME + _long(event.ttl_ms)}"
        f"{_long(len(payload))}"
    ).encode("latin-1")
    tail = b"\x00\x00\x00\x00"
    if event.stream_sequence is not None or event.stream_final is not None or event.signature or extensions:
        tail = _tail(event, extensions)
    return b"%b%b%b%b%b" % (front, payload, _long(len(metadata)).encode("latin-1"), metadata, tail)


def _remember_head(kind: tuple[str, str, str, AgentRef]) -> str:
    spec_version, event_type, event_version, producer = kind
    texts = (spec_version, event_type, event_version, *(getattr(producer, n) for n in AgentRef.__slots__))
    head = "".join(map(_text, texts))
    if len(head) <= _MAX_CACHED_BYTES:
        if len(_heads) >= _CACHED:
            _heads.clear()
        _heads[kind] = head
    return head


def _tail(event: EventEnvelope, extensions: dict[str, bytes]) -> bytes:
    final, signature = event.stream_final, event.signature
    out = _NULL if event.stream_sequence is None else _SOME + _long(event.stream_sequence)
    out += _NULL if final is None else "\x02\x01" if final else "\x02\x00"
    if signature is None:
        out += _NULL
    else:
        out += _SOME + "".join(_text(getattr(signature, name)) for name in SignatureBlock.__slots__)
    if extensions:
        out += _long(len(extensions))
        for name, text in extensions.items():
            out += _text(name) + _long(len(text)) + text.decode("latin-1")
    return (out + _NULL).encode("latin-1")


def decode_body(data: bytes, pos: int) -> EventEnvelope | None:
    """The event whose body begins at `pos` and ends with `data`; None when it is not as expected.

    Raises:
        EventValidationError: the structure is sound and one of the JSON texts is not.
    """
    try:
        return _decode(data, pos)
    except (IndexError, UnicodeDecodeError, _Unusual):
        return None


def _decode(data: bytes, start: int) -> EventEnvelope:
    # 1. Kind and producer: seven texts, known from an earlier event or read with care.
    pos = start
    for _ in range(7):
        pos += 1 + (data[pos] >> 1)
    head = _parsed.get(data[start:pos])
    if head is None:
        head, pos = _read_head(data, start)
    spec_version, event_type, event_version, producer = head
    # 2. What is of fixed length.
    ids = _IDS.match(data, pos)
    if ids is None:
        raise _Unusual
    event_id, trace_id, span_id, parent = ids.groups()
    depth, pos = _read_long(data, ids.end(), MAX_INT)
    timestamp_ms, pos = _read_time(data, pos)
    # 3. Optional fields: a zero byte each when absent.
    cause = correlation = idempotency = partition = ttl_ms = None
    if data[pos]:
        cause, pos = _read_some(data, pos)
    else:
        pos += 1
    if data[pos]:
        correlation, pos = _read_some(data, pos)
    else:
        pos += 1
    if data[pos]:
        idempotency, pos = _read_some(data, pos)
    else:
        pos += 1
    if data[pos]:
        partition, pos = _read_some(data, pos)
    else:
        pos += 1
    if data[pos]:
        ttl_ms, pos = _read_some_long(data, pos)
    else:
        pos += 1
    # 4. JSON texts are cut out here and parsed when the structure has proved sound to its end.
    length, pos = _read_long(data, pos, len(data))
    payload = data[pos : pos + length]
    pos += length
    length, pos = _read_long(data, pos, len(data))
    metadata = data[pos : pos + length]
    pos += length
    sequence = final = None
    if data[pos:] != b"\x00\x00\x00\x00":
        sequence, final = _read_stream(data, pos)
    return trusted(
        spec_version,
        event_id.decode(),
        event_type,
        event_version,
        timestamp_ms,
        producer,
        trusted_trace(trace_id.decode(), span_id.decode(), parent.decode() if parent else None, depth),
        cause,
        correlation,
        idempotency,
        partition,
        ttl_ms,
        parse_object(payload, "payload"),
        {} if metadata == b"{}" else parse_object(metadata, "metadata"),
        None,
        sequence,
        final,
        {},
    )


def _read_head(data: bytes, start: int) -> tuple[tuple[str, str, str, AgentRef], int]:
    texts = []
    pos = start
    for _ in range(7):
        text, pos = _read_text(data, pos)
        texts.append(text)
    spec_version, event_type, event_version, *rest = texts
    producer = AgentRef(*rest)
    try:
        check_kind(spec_version, event_type, event_version)
        check_producer(producer)
    except EventValidationError:
        raise _Unusual from None
    head = spec_version, event_type, event_version, producer
    if pos - start <= _MAX_CACHED_BYTES:
        if len(_parsed) >= _CACHED:
            _parsed.clear()
        _parsed[data[start:pos]] = head
    return head, pos


def _read_time(data: bytes, start: int) -> tuple[int, int]:
    """A timestamp; of its six bytes the last four change every eight seconds, and are looked up."""
    high = _times.get(data[start + 2 : start + 6])
    low, middle = data[start], data[start + 1]
    if high is not None and low > 0x7F and middle > 0x7F and not low & 1:
        return high + ((low & 0x7F) >> 1) + ((middle & 0x7F) << 6), start + 6
    timestamp_ms, pos = _read_long(data, start, MAX_TIMESTAMP_MS)
    if pos - start == 6:
        if len(_times) >= _CACHED:
            _times.clear()
        _times[data[start + 2 : pos]] = timestamp_ms >> 13 << 13
    return timestamp_ms, pos


def _read_long(data: bytes, pos: int, maximum: int) -> tuple[int, int]:
    """A number from 0 to `maximum` in its shortest form, and what follows it."""
    byte = data[pos]
    pos += 1
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte or shift > 70:
            raise _Unusual
    if value & 1 or value >> 1 > maximum:
        raise _Unusual
    return value >> 1, pos


def _read_text(data: bytes, pos: int) -> tuple[str, int]:
    length = data[pos]
    if length & 0x81:
        length, pos = _read_long(data, pos, len(data))
    else:
        length >>= 1
        pos += 1
    end = pos + length
    if end > len(data):
        raise _Unusual
    return data[pos:end].decode(), end


def _read_some(data: bytes, pos: int) -> tuple[str, int]:
    """A text of at least one character behind the mark that it is there."""
    if data[pos] != 2 or not data[pos + 1]:
        raise _Unusual
    return _read_text(data, pos + 1)


def _read_some_long(data: bytes, pos: int) -> tuple[int, int]:
    if data[pos] != 2:
        raise _Unusual
    return _read_long(data, pos + 1, MAX_INT)


def _read_stream(data: bytes, pos: int) -> tuple[int | None, bool | None]:
    """The tail of an event without signature and extensions; those are rare, and read the careful way."""
    sequence = final = None
    if data[pos]:
        sequence, pos = _read_some_long(data, pos)
    else:
        pos += 1
    if data[pos]:
        if data[pos] != 2 or data[pos + 1] > 1:
            raise _Unusual
        final = data[pos + 1] == 1
        pos += 2
    else:
        pos += 1
    if data[pos:] != b"\x00\x00":
        raise _Unusual
    return sequence, final
