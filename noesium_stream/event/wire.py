"""The body of the current envelope schema, written out in plain Python.

fastavro takes 26-33 µs to encode the envelope and 27-30 to decode it, most of it for building dicts
and looking fields up by name. What is below knows the one schema (`schema.ENVELOPE_SCHEMA`): each line
is a field of it, in its order. `tests/property/test_codec_bytes.py` proves it equal to fastavro, byte
for byte. Two tricks carry the speed:

- Kind and producer, the seven texts in front, repeat from event to event: their bytes are looked up in
  a bounded table instead of being made.
- Texts are joined as latin-1 characters, one per byte, and become bytes once.

`wire_read` is the way back.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.parts import AgentRef, SignatureBlock

_NULL: Final = "\x00"
_SOME: Final = "\x02"
_SPAN: Final = "\x02 "
_PLAIN_END: Final = b"\x04{}\x00\x00\x00\x00"
"""No metadata, and nothing behind it."""
_CACHED: Final = 4096
_MAX_CACHED_BYTES: Final = 1024


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
_latest: dict[str, tuple[AgentRef | None, str, str, str]] = {}
"""By type, the head that was written last: whoever writes much is one object, which is known again sooner."""
_NONE: Final[tuple[AgentRef | None, str, str, str]] = (None, "", "", "")


def _text(text: str) -> str:
    if not text.isascii():
        text = text.encode().decode("latin-1")
    length = len(text)
    return (_LENGTHS[length] if length < 2048 else _long(length)) + text


def encode_body(event: EventEnvelope, payload: bytes, metadata: bytes, extensions: dict[str, bytes]) -> bytes:
    """The Avro body of an event whose JSON parts are written already."""
    trace = event.trace
    parent = trace.parent_span_id
    producer, spec_version, event_version, head = _latest.get(event.event_type, _NONE)
    if (
        producer is not event.producer
        or spec_version != event.spec_version
        or event_version != event.event_version
    ):
        head = _head(event)
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


def head_of(event: EventEnvelope) -> str:
    """The characters, one per byte, that all bodies of this kind and producer begin with."""
    return _head(event)


def short_text(text: str | None) -> str | None:
    """An optional text as it stands in a body, a character per byte; None: it is not short, or not ASCII."""
    if text is None:
        return _NULL
    if type(text) is str and 0 < len(text) < len(_LENGTHS) and text.isascii():
        return f"{_SOME}{_LENGTHS[len(text)]}{text}"
    return None


def long_text(value: int) -> str:
    """A whole number as it stands in a body, a character per byte."""
    return _long(value)


def child_body(
    head: str,
    event_id: str,
    span_id: str,
    at: str,
    cause: EventEnvelope,
    correlation: str,
    idempotency: str,
    partition: str,
    payload: bytes,
) -> bytes | None:
    """The body of an event that comes of another one, and what is in front of it; other fields have no value.

    Args:
        head: what stands in front of the id, a character per byte.
        event_id: its id, and
        span_id: its span: sound ones.
        at: its time, as `long_text` has it.
        cause: a sound event, its parent in the trace.
        correlation: its id of correlation.
        idempotency: its idempotency key, in ASCII.
        partition: its partition key, as `short_text` has it.
        payload: its JSON text.

    Returns:
        None where a text is not short, or not ASCII: `encode_body` writes all of them.
    """
    trace, size = cause.trace, len(payload)
    try:
        front = (
            f"{head}H{event_id}@{trace.trace_id} {span_id}\x02 {trace.span_id}{_LENGTHS[trace.depth]}{at}"
            f"\x02H{cause.event_id}\x02{_LENGTHS[len(correlation)]}{correlation}"
            f"\x02{_LENGTHS[len(idempotency)]}{idempotency}{partition}"
            f"\x00{_LENGTHS[size] if size < 2048 else _long(size)}"
        )
    except IndexError:
        return None
    if not correlation.isascii():
        return None
    return b"%b%b%b" % (front.encode("latin-1"), payload, _PLAIN_END)


def _head(event: EventEnvelope) -> str:
    """Kind and producer: looked up, or made and remembered."""
    kind = event.spec_version, event.event_type, event.event_version, event.producer
    head = _heads.get(kind)
    if head is None:
        head = _remember_head(kind)
    if len(_latest) >= _CACHED:
        _latest.clear()
    if len(head) <= _MAX_CACHED_BYTES:
        _latest[event.event_type] = (event.producer, event.spec_version, event.event_version, head)
    return head


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
