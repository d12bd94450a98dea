"""Decoder of the current envelope schema in plain Python; `codec.encode_body` is the encoder.

Decision record: of the 7 µs that folding an event into a sum took, decoding it field by field took 4.5. Most
events are *usual*: their kind and producer were read before, and every text except the JSON has less than 64
ASCII characters. One regular expression splits the front of such an event, and its parts are checked by their
shape: that takes half the time. All other events are decoded field by field, with the same result.

Both ways give up on unexpected input. The caller of `decode_body` then uses the slow way
(`other_schemas.py`), which either names the mistake or decodes a rare form.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from noesium_stream.errors import EventValidationError
from noesium_stream.event.envelope import EnvelopeDraft, EventEnvelope, trusted
from noesium_stream.event.envelope_fields import (
    MAX_INT,
    MAX_TIMESTAMP_MS,
    UUID7,
    AgentRef,
    TraceContext,
    TraceDraft,
    check_kind,
    check_producer,
    trusted_trace,
)
from noesium_stream.event.limits import MAX_NAME
from noesium_stream.event.payload.value import parse_object

_CACHED: Final = 4096
_MAX_CACHED_BYTES: Final = 1024
_IDS: Final = re.compile(
    rf"H({UUID7})@([0-9a-f]{{32}}) ([0-9a-f]{{16}})(?:\x00|\x02 ([0-9a-f]{{16}}))".encode()
)
"""event_id, trace_id, span_id and parent_span_id with their lengths: 72, 64 and 32 are twice 36, 32, 16."""

_SHORT: Final = "|".join(f"{re.escape(chr(2 * length))}.{{{length}}}" for length in (36, *range(1, 64)))
_OPTIONAL: Final = f"(?:\x00|\x02({_SHORT}))"
_USUAL: Final = re.compile(
    r"H(.{8}-.{4}-7.{3}-[89ab].{3}-.{12})@(.{32}) (.{16})(?:\x00|\x02 (.{16}))"
    rf"[\x00-\x7f][\x80-\xff]{{2}}([\x80-\xff]{{3}}.){_OPTIONAL * 4}\x00",
    re.DOTALL,
)
"""Matches from event_id to ttl_ms, which is absent; characters of ids are not checked, which is faster.

Depth has one byte, the timestamp six. The lengths of the optional texts are captured with them.
"""
_USUAL_BYTES: Final = _MAX_CACHED_BYTES + 400
_SHAPES: Final = bytes(
    ord("h") if byte in b"0123456789abcdef" else byte if byte in b"H-@ \x02\x00" else ord("x")
    for byte in range(256)
)
"""Translation table: hexadecimal digits become one character, and bytes that ids never contain another."""
_ROOT: Final = b"Hhhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh@%b %b\x00" % (b"h" * 32, b"h" * 16)
_CHILD: Final = b"%b\x02 %b" % (_ROOT[:-1], b"h" * 16)
"""Shapes of the ids of a span without and with a parent."""
_CHILD_BYTES: Final = len(_CHILD)
_ROOT_BYTES: Final = len(_ROOT)
_PLAIN_END: Final = b"\x04{}\x00\x00\x00\x00"
"""Encoding of empty metadata and absent remaining fields."""

_Head = tuple[str, str, str, AgentRef]
_heads: dict[str, _Head] = {}
"""Kinds and producers by their bytes, one character each. No valid one is a prefix of another."""
_times: dict[str, int] = {}


class _Unusual(Exception):
    """Input that the hand-written decoder does not expect; never leaves this module."""


def decode_body(data: bytes, pos: int) -> EventEnvelope | None:
    """The event whose body begins at `pos` and ends with `data`; None if it has an unexpected form.

    Raises:
        EventValidationError: the structure is valid, but one of the JSON texts is not.
    """
    try:
        return _usual(data, pos) or _decode(data, pos)
    except (IndexError, UnicodeDecodeError, _Unusual):
        return None


def _usual(data: bytes, start: int) -> EventEnvelope | None:
    # 1. The front begins after a known kind and producer; otherwise give up.
    text = (data if len(data) <= _USUAL_BYTES else data[:_USUAL_BYTES]).decode("latin-1")
    front = _USUAL.search(text, start)
    if front is None:
        return None
    ids, pos = front.span()
    head = _heads.get(text[start:ids])
    event_id, trace_id, span_id, parent, high, cause, correlation, idempotency, partition = front.groups()
    since = _times.get(high)
    # 2. Ids consist of hexadecimal digits, optional texts of ASCII.
    length, shape = (_ROOT_BYTES, _ROOT) if parent is None else (_CHILD_BYTES, _CHILD)
    end = ids + length
    if (
        head is None
        or since is None
        or data[ids:end].translate(_SHAPES) != shape
        or not text[end + 7 : pos].isascii()
    ):
        return None
    depth, low, middle = data[end], data[end + 1], data[end + 2]
    if (depth | low) & 1:
        return None
    # 3. Parse JSON texts only after the whole structure is checked.
    length, more = data[pos], data[pos + 1]
    if length > 0x7F and 0 < more <= 0x7F and not length & 1:
        length = (length & 0x7F | more << 7) >> 1
        pos += 2
    else:
        length, pos = _read_long(data, pos, len(data))
    payload = data[pos : pos + length]
    metadata, sequence, final = b"{}", None, None
    if data[pos + length :] != _PLAIN_END:
        metadata, sequence, final = _read_end(data, pos + length)
    event: Any = EnvelopeDraft()
    event.spec_version, event.event_type, event.event_version, event.producer = head
    event.event_id = event_id
    event.timestamp_ms = since + ((low & 0x7F) >> 1) + ((middle & 0x7F) << 6)
    trace: Any = TraceDraft()
    trace.trace_id, trace.span_id, trace.parent_span_id, trace.depth = trace_id, span_id, parent, depth >> 1
    trace.__class__ = TraceContext
    event.trace = trace
    event.causation_id = cause and cause[1:]
    event.correlation_id = correlation and correlation[1:]
    event.idempotency_key = idempotency and idempotency[1:]
    event.partition_key = partition and partition[1:]
    event.payload = parse_object(payload, "payload")
    event.metadata = {} if metadata == b"{}" else parse_object(metadata, "metadata")
    event.ttl_ms = event.signature = None
    event.stream_sequence = sequence
    event.stream_final = final
    event.extensions = {}
    event.__class__ = EventEnvelope
    return cast("EventEnvelope", event)


def _decode(data: bytes, start: int) -> EventEnvelope:
    # 1. Kind and producer: seven texts, cached from an earlier event or decoded and checked.
    pos = start
    for _ in range(7):
        pos += 1 + (data[pos] >> 1)
    head = _heads.get(data[start:pos].decode("latin-1"))
    if head is None:
        head, pos = _read_head(data, start)
    spec_version, event_type, event_version, producer = head
    # 2. Fields of fixed length.
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
    # 4. Cut out JSON texts; parse them only after the whole structure is checked.
    length, pos = _read_long(data, pos, len(data))
    payload = data[pos : pos + length]
    pos += length
    metadata, sequence, final = _read_end(data, pos)
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


def _read_head(data: bytes, start: int) -> tuple[_Head, int]:
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
        if len(_heads) >= _CACHED:
            _heads.clear()
        _heads[data[start:pos].decode("latin-1")] = head
    return head, pos


def _read_time(data: bytes, start: int) -> tuple[int, int]:
    """A timestamp.

    Its last four of six bytes change every eight seconds, so their value is cached.
    """
    timestamp_ms, pos = _read_long(data, start, MAX_TIMESTAMP_MS)
    since = timestamp_ms >> 13 << 13
    if pos - start == 6:
        if len(_times) >= _CACHED:
            _times.clear()
        _times[data[start + 2 : pos].decode("latin-1")] = since
    return timestamp_ms, pos


def _read_long(data: bytes, pos: int, maximum: int) -> tuple[int, int]:
    """A number from 0 to `maximum` in its shortest form, and the position after it."""
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
    """A non-empty text of bounded length after the marker of its presence."""
    if data[pos] != 2 or not data[pos + 1]:
        raise _Unusual
    text, pos = _read_text(data, pos + 1)
    if len(text) > MAX_NAME:
        raise _Unusual
    return text, pos


def _read_some_long(data: bytes, pos: int) -> tuple[int, int]:
    if data[pos] != 2:
        raise _Unusual
    return _read_long(data, pos + 1, MAX_INT)


def _read_end(data: bytes, pos: int) -> tuple[bytes, int | None, bool | None]:
    """The metadata's text, and the fields after it."""
    length, pos = _read_long(data, pos, len(data))
    metadata = data[pos : pos + length]
    pos += length
    if data[pos:] == b"\x00\x00\x00\x00":
        return metadata, None, None
    return metadata, *_read_stream(data, pos)


def _read_stream(data: bytes, pos: int) -> tuple[int | None, bool | None]:
    """The last fields of an event without signature and extensions.

    Events with these are rare and take the slow way.
    """
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
