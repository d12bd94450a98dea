"""Envelopes to bytes and back (RFC-0002): Avro single-object encoding, or the Confluent wire format.

    C3 01 <CRC-64-AVRO of the writer schema, 8 bytes little-endian> <Avro body>
    00 <number of the writer schema in the registry, 4 bytes big-endian> <Avro body>

The body of the current schema is encoded here and decoded in `decode.py`, in plain Python. Every other known
writer schema, and any unusual input (signatures, extensions, mistakes), takes the slow way
(`other_schemas.py`): a structural check within limits, fastavro, and the checks of the envelope's own
constructor. The order of decoding is the guarantee:

1. structure: nothing is built before lengths, numbers and counts are checked;
2. JSON text and the envelope's fields;
3. the signature, if present, and that these are the only allowed bytes for the signed values;
4. the catalogue's schema of the payload.

Decision record: fastavro takes 26-33 µs to encode the envelope and 27-30 to decode it, most of it for
building dicts and looking fields up by name. `encode_body` is written for one schema: each line is a field,
in its order. `tests/property/test_codec_bytes.py` proves it equal to fastavro, byte for byte. Kind and
producer, the seven texts in front, repeat from event to event and are looked up in a bounded table. Texts are
joined as latin-1 characters, one per byte, and become bytes once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from noesium_stream.errors import EventValidationError
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.codec.decode import decode_body
from noesium_stream.event.codec.other_schemas import (
    CURRENT_FRAME,
    SINGLE_OBJECT,
    SchemaRegistry,
    WriterSchemas,
)
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import SPEC_VERSION, AgentRef, SignatureBlock
from noesium_stream.event.limits import MAX_RECORD_BYTES
from noesium_stream.event.payload.canonical import canonical_text
from noesium_stream.event.payload.value import dump_json
from noesium_stream.event.record_proofs import RecordSigner, RecordVerifier
from noesium_stream.event.sealing.keys import SubjectKeys
from noesium_stream.event.sealing.seal import IMPLYING, SEALED, Sealer
from noesium_stream.event.signing import Signer, Verifier
from noesium_stream.event.standard.catalogue import standard_catalogue

_NULL: Final = "\x00"
_SOME: Final = "\x02"
_SPAN: Final = "\x02 "
_PLAIN_END: Final = b"\x04{}\x00\x00\x00\x00"
"""Encoding of empty metadata and absent remaining fields."""
_CACHED: Final = 4096
_MAX_CACHED_BYTES: Final = 1024


_BEFORE_TYPE: Final = CURRENT_FRAME + bytes((2 * len(SPEC_VERSION),)) + SPEC_VERSION.encode()
_ID_LENGTH: Final = 72
"""What stands in front of an event's id: twice its 36 characters."""
_AGENT_ID: Final = 2
"""Index of the producer's agent id among the texts behind the specification's version."""
_TOLD: Final = 64
_MOST_BEGINNINGS: Final = 4_096
_BEGINNINGS: Final[dict[bytes, tuple[bytes, str]]] = {}
"""What stands before the event id, and the agent id in it, by the first `_TOLD` bytes."""
TYPE_AT: Final = len(_BEFORE_TYPE) + 1
"""Index of the type in values that `peek_type` can read; the byte before it is twice the type's length."""


def peek_type(data: bytes) -> bytes | None:
    """The event type at the start of an encoded event, at a tenth of the cost of decoding it.

    None if decoding is needed: another writer schema, a registry's format, or something else.
    """
    if data[: TYPE_AT - 1] != _BEFORE_TYPE or len(data) < TYPE_AT:
        return None
    length = data[TYPE_AT - 1]  # zigzag, in one byte below 64
    if length & 0x81 or len(data) < TYPE_AT + (length >> 1):
        return None
    return data[TYPE_AT : TYPE_AT + (length >> 1)]


def peek_identity(data: bytes) -> str | None:
    """The event id and the producer's agent id of an encoded event, without decoding it.

    None if decoding is needed, as for `peek_type`. Where the id stands is remembered for the events of a type
    and a producer: they begin with the same bytes.
    """
    known = _BEGINNINGS.get(data[:_TOLD])
    if known is None or not data.startswith(known[0]):
        known = _beginning(data)
        if known is None:
            return None
        if len(_BEGINNINGS) >= _MOST_BEGINNINGS:
            _BEGINNINGS.clear()
        _BEGINNINGS[data[:_TOLD]] = known
    beginning, agent_id = known
    event_id = data[len(beginning) : len(beginning) + 36]
    return str(event_id, "utf-8", "replace") + agent_id if len(event_id) == 36 else None


def _beginning(data: bytes) -> tuple[bytes, str] | None:
    """What stands before the event id, and the producer's agent id in it."""
    if data[: TYPE_AT - 1] != _BEFORE_TYPE:
        return None
    at, agent = TYPE_AT - 1, (0, 0)
    try:
        for number in range(6):  # type, version, and the four texts of the producer
            length = data[at]
            if length & 0x81:
                return None  # 64 bytes or more
            end = at + 1 + (length >> 1)
            if number == _AGENT_ID:
                agent = at + 1, end
            at = end
        if data[at] != _ID_LENGTH:
            return None
    except IndexError:
        return None
    return data[: at + 1], data[slice(*agent)].decode("utf-8", "replace")


def is_framed(data: bytes) -> bool:
    """Whether these bytes start like an event in any writer schema."""
    return (data[:2] == SINGLE_OBJECT and len(data) >= 10) or (data[:1] == b"\x00" and len(data) >= 5)


class EnvelopeCodec:
    """Encodes and decodes events; the catalogue validates the payload in both directions.

    Args:
        catalogue: the known types; default `standard_catalogue()`.
        verifier: the keys for signatures. Without one a signed event is refused, because RFC-0002 requires
            that a present signature is verified. What it requires is asked of records (`record_verifier`).
        signer: the key with which records are signed.
        registry: makes the codec write the Confluent wire format, and read it as well.
        writer_schemas: Avro schemas of envelopes that this version does not know.
        subject_keys: the keys with which events about people are sealed, and read.

    Attributes:
        sealer: seals and opens events about people.
        record_verifier: checks the proofs of records; None: they are not looked at.
        record_signer: proves records that are written; None: they are not signed.
        trust: keeps the verifier's keys up to date; None: they are those that it was given.

    Raises:
        ConfigError, LogUnavailableError: the registry rejects the envelope's schema or does not answer.
    """

    def __init__(
        self,
        catalogue: Catalogue | None = None,
        *,
        verifier: Verifier | None = None,
        signer: Signer | None = None,
        registry: SchemaRegistry | None = None,
        writer_schemas: Iterable[Any] = (),
        subject_keys: SubjectKeys | None = None,
    ) -> None:
        self.catalogue = catalogue if catalogue is not None else standard_catalogue()
        self._validate = self.catalogue.validate
        self._verifier = verifier
        self.record_verifier = None if verifier is None else RecordVerifier(verifier)
        self.trust: Any = None
        self.record_signer = None if signer is None else RecordSigner(signer)
        self.sealer = Sealer(subject_keys, self.catalogue)
        self._others = WriterSchemas(registry, writer_schemas)
        self._header = self._others.frame
        self._start = len(self._header)

    @property
    def frame(self) -> bytes:
        """The prefix of every body that it writes."""
        return self._header

    def encode(self, envelope: EventEnvelope) -> bytes:
        """Encode an event after validating its payload.

        Raises:
            UnknownSchemaError: its type or version is not in the catalogue.
            EventValidationError: the payload violates its schema, is not JSON, or is too large.
            SubjectKeyError: it is about a person, and there is no key to seal it with.
        """
        if envelope.metadata or envelope.event_type in IMPLYING:
            if SEALED not in envelope.metadata:
                self._validate(envelope)
            envelope = self.sealer.seal(envelope)
        else:
            self._validate(envelope)
        write = dump_json if envelope.signature is None else canonical_text
        metadata = write(envelope.metadata, "metadata") if envelope.metadata else b"{}"
        extensions = _extensions(envelope, write) if envelope.extensions else {}
        body = encode_body(envelope, write(envelope.payload, "payload"), metadata, extensions)
        if len(body) > MAX_RECORD_BYTES:
            raise EventValidationError(
                "value",
                f"{envelope.event_type} has {len(body):,} bytes, an event takes {MAX_RECORD_BYTES:,}",
                hint="Keep large content elsewhere and put its address and hash into the event.",
            )
        return self._header + body

    def decode(self, data: bytes) -> EventEnvelope:
        """Decode an event; check its structure, its signature if present, and its payload's schema.

        Raises:
            UnknownSchemaError: its writer schema, type or version is not known here.
            SignatureError: its signature is invalid, or the key is unknown.
            SubjectKeyError: it is sealed, and the key of its data subject is not here.
            EventValidationError: it cannot be decoded or is invalid; names field and reason.
            LogUnavailableError: its writer schema must be fetched from a registry that does not answer.
        """
        event = None
        if type(data) is bytes and data[: self._start] == self._header and len(data) <= MAX_RECORD_BYTES:
            event = decode_body(data, self._start)
        if event is None:
            event = self._read(data)
        if event.signature is not None:
            self._others.verify(event, data, self._verifier or Verifier())
        if event.metadata and SEALED in event.metadata:
            event = self.sealer.open(event)
            if SEALED in event.metadata:
                return event  # stand-ins are not judged
        self._validate(event)
        return event

    def decode_unchecked(self, data: bytes) -> EventEnvelope:
        """As `decode`, without the catalogue: it also decodes unknown types, for tools that show them.

        Signatures are verified if the codec has a verifier. Without one, this is the way to inspect a signed
        event.
        """
        event = self._read(data)
        if self._verifier is not None and event.signature is not None:
            self._others.verify(event, data, self._verifier)
        return self.sealer.open(event) if event.metadata and SEALED in event.metadata else event

    def decode_closed(self, data: bytes) -> EventEnvelope:
        """As `decode_unchecked`, with sealed fields as they are on the log, and without signatures."""
        return self._read(data)

    async def know_keys_of(self, records: Sequence[Any]) -> None:
        """Have the keys that records of the log are signed with, as far as its registry has them."""
        if self.trust is not None:
            await self.trust.know(records)

    def upcast(self, event: EventEnvelope) -> EventEnvelope:
        """The event in the newest known major version of its type; see `Catalogue.upcast`."""
        return self.catalogue.upcast(event)

    def _read(self, data: bytes) -> EventEnvelope:
        if not isinstance(data, bytes):
            raise EventValidationError("value", f"is not bytes but {type(data).__name__}")
        if data[: self._start] == self._header and len(data) <= MAX_RECORD_BYTES:
            event = decode_body(data, self._start)
            if event is not None:
                return event
        return self._others.read(data)


def _extensions(envelope: EventEnvelope, write: Callable[[Any, str], bytes]) -> dict[str, bytes]:
    """JSON text of the extensions, in the order of their names."""
    return {name: write(value, f"extensions.{name}") for name, value in sorted(envelope.extensions.items())}


@lru_cache(maxsize=4096)
def _long(value: int) -> str:
    """A cached `long_text`: events of one moment share their timestamp, and most lengths repeat."""
    value = value << 1 ^ value >> 63
    out = ""
    while value > 0x7F:
        out += chr(value & 0x7F | 0x80)
        value >>= 7
    return out + chr(value)


_LENGTHS: Final = tuple(_long(length) for length in range(2048))
_heads: dict[tuple[str, str, str, AgentRef], str] = {}
_latest: dict[str, tuple[AgentRef | None, str, str, str]] = {}
"""The last written head by type: a frequent producer is usually the same object, which is found faster."""
_NONE: Final[tuple[AgentRef | None, str, str, str]] = (None, "", "", "")


def _text(text: str) -> str:
    if not text.isascii():
        text = text.encode().decode("latin-1")
    length = len(text)
    return (_LENGTHS[length] if length < 2048 else _long(length)) + text


def encode_body(event: EventEnvelope, payload: bytes, metadata: bytes, extensions: dict[str, bytes]) -> bytes:
    """The Avro body of an event whose JSON parts are encoded already."""
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
    """The characters, one per byte, at the start of all bodies of this kind and producer."""
    return _head(event)


def short_text(text: str | None) -> str | None:
    """An optional text as encoded in a body, one character per byte; None if it is not short ASCII."""
    if text is None:
        return _NULL
    if type(text) is str and 0 < len(text) < len(_LENGTHS) and text.isascii():
        return f"{_SOME}{_LENGTHS[len(text)]}{text}"
    return None


def long_text(value: int) -> str:
    """A whole number as encoded in a body, one character per byte."""
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
    """Frame and body of an event that is caused by another one; unlisted fields are absent.

    Args:
        head: the characters before the id, one per byte.
        event_id: its valid id.
        span_id: its valid span id.
        at: its time, as `long_text` encodes it.
        cause: a valid event, its parent in the trace.
        correlation: its correlation id.
        idempotency: its idempotency key, in ASCII.
        partition: its partition key, as `short_text` encodes it.
        payload: its JSON text.

    Returns:
        None if a text is not short ASCII: `encode_body` writes all texts.
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
    """Kind and producer, from the cache or encoded and cached."""
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
