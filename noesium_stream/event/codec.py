"""Envelopes to bytes and back (RFC-0002): Avro single-object encoding, or the Confluent wire format.

    C3 01 <CRC-64-AVRO of the writer schema, 8 bytes little-endian> <Avro body>
    00 <number of the writer schema in the registry, 4 bytes big-endian> <Avro body>

The body of the current schema is read and written by `wire`, in plain Python. Every other known writer
schema, and everything unusual (signatures, extensions, mistakes), goes the careful way: a structural
check within limits (`guard`), fastavro, and the checks of the envelope's own constructor. The order of
reading is the guarantee:

1. structure: nothing is built before lengths, numbers and counts have proved sound;
2. JSON text and the envelope's fields;
3. the signature, if there is one, and that these are the only bytes that can carry it;
4. the catalogue's schema of the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from noesium_stream.errors import EventValidationError, SignatureError, UnknownSchemaError
from noesium_stream.event.canonical import canonical_text
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.json_text import dump_json, parse_json
from noesium_stream.event.limits import MAX_RECORD_BYTES
from noesium_stream.event.parts import SPEC_VERSION
from noesium_stream.event.resolve import WriterSchema, from_record
from noesium_stream.event.schema import ENVELOPE_SCHEMA, envelope_fingerprint, fingerprint, released_schemas
from noesium_stream.event.signing import Verifier
from noesium_stream.event.standard_catalogue import standard_catalogue
from noesium_stream.event.wire import encode_body
from noesium_stream.event.wire_read import decode_body

_SINGLE_OBJECT: Final = b"\xc3\x01"
_CURRENT: Final = _SINGLE_OBJECT + struct.pack("<Q", envelope_fingerprint())
_UPGRADE: Final = (
    "It was written by a newer version, or by something else: upgrade, or hand its Avro schema to the "
    "codec (writer_schemas)."
)


def _text(value: str) -> bytes:
    """A short text as Avro writes it."""
    data = value.encode()
    return bytes((2 * len(data),)) + data


_BEFORE_TYPE: Final = _CURRENT + _text(SPEC_VERSION)
TYPE_AT: Final = len(_BEFORE_TYPE) + 1
"""Where the type stands in values that `peek_type` can read; the byte before is twice its length."""


def peek_type(data: bytes) -> bytes | None:
    """The event type that an encoded event begins with, at a tenth of the cost of decoding it.

    None where that takes decoding: another writer schema, a registry's format, something else.
    """
    if data[: TYPE_AT - 1] != _BEFORE_TYPE or len(data) < TYPE_AT:
        return None
    length = data[TYPE_AT - 1]  # zigzag, in one byte below 64
    if length & 0x81 or len(data) < TYPE_AT + (length >> 1):
        return None
    return data[TYPE_AT : TYPE_AT + (length >> 1)]


def is_framed(data: bytes) -> bool:
    """Whether these bytes begin as an event does, whatever schema it is written with."""
    return (data[:2] == _SINGLE_OBJECT and len(data) >= 10) or (data[:1] == b"\x00" and len(data) >= 5)


class SchemaRegistry(Protocol):
    """Numbers for writer schemas, and back; see `noesium_stream.event.registry.ConfluentRegistry`."""

    def schema_id(self, schema: Any) -> int:
        """The number of a schema, registered if it is new."""

    def schema(self, schema_id: int) -> Any:
        """The Avro schema of a number; raises `UnknownSchemaError`."""


class EnvelopeCodec:
    """Encodes and decodes events; both ways the payload is validated by the catalogue.

    Args:
        catalogue: the known types; default `standard_catalogue()`.
        verifier: the keys for signatures. Without one a signed event is refused, because RFC-0002 wants
            a signature that is present to be verified.
        registry: makes the codec write the Confluent wire format, and read it as well.
        writer_schemas: Avro schemas of envelopes that this version does not know.

    Raises:
        ConfigError, LogUnavailableError: the registry does not take the envelope's schema.
    """

    def __init__(
        self,
        catalogue: Catalogue | None = None,
        *,
        verifier: Verifier | None = None,
        registry: SchemaRegistry | None = None,
        writer_schemas: Iterable[Any] = (),
    ) -> None:
        self.catalogue = catalogue if catalogue is not None else standard_catalogue()
        self._validate = self.catalogue.validate
        self._verifier = verifier
        self._required = verifier is not None and verifier.required
        self._registry = registry
        self._schemas = {**released_schemas(), **{fingerprint(schema): schema for schema in writer_schemas}}
        self._readers: dict[bytes, WriterSchema] = {_CURRENT: WriterSchema(ENVELOPE_SCHEMA)}
        self._header = _CURRENT
        if registry is not None:
            self._header = b"\x00" + struct.pack(">I", registry.schema_id(ENVELOPE_SCHEMA))
            self._readers[self._header] = self._readers[_CURRENT]
        self._start = len(self._header)

    @property
    def frame(self) -> bytes:
        """What stands in front of every body that it writes."""
        return self._header

    def encode(self, envelope: EventEnvelope) -> bytes:
        """The bytes of an event, after validation of its payload.

        Raises:
            UnknownSchemaError: its type or version is not in the catalogue.
            EventValidationError: the payload does not fit its schema, or is no JSON; or it is too large.
        """
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
        """The event of these bytes: sound, verified if it is signed, and valid by its schema.

        Raises:
            UnknownSchemaError: its writer schema, type or version is not known here.
            SignatureError: it is signed and the signature does not hold (or none of its keys is known).
            EventValidationError: it cannot be decoded or is not valid; names field and reason.
            LogUnavailableError: its writer schema has to be asked of a registry that does not answer.
        """
        event = None
        if type(data) is bytes and data[: self._start] == self._header and len(data) <= MAX_RECORD_BYTES:
            event = decode_body(data, self._start)
        if event is None:
            event = self._read(data)
        if event.signature is not None or self._required:
            self._verify(event, data, self._verifier or Verifier())
        self._validate(event)
        return event

    def decode_unchecked(self, data: bytes) -> EventEnvelope:
        """As `decode`, without the catalogue: also events of unknown types, for tools that show them.

        Signatures are verified if the codec has a verifier; without one this is the way to look at a
        signed event.
        """
        event = self._read(data)
        if self._verifier is not None:
            self._verify(event, data, self._verifier)
        return event

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
        header, reader = self._reader(data)
        return from_record(reader.read(data, len(header)))

    def _reader(self, data: bytes) -> tuple[bytes, WriterSchema]:
        """The frame in front of the body, and who can read what follows."""
        if len(data) > MAX_RECORD_BYTES + 10:
            raise EventValidationError("value", f"{len(data)} bytes are more than {MAX_RECORD_BYTES}")
        if data[:2] == _SINGLE_OBJECT and len(data) >= 10:
            header, find = data[:10], self._by_fingerprint
        elif data[:1] == b"\x00" and len(data) >= 5:
            header, find = data[:5], self._by_number
        else:
            raise UnknownSchemaError(
                "value",
                f"{len(data)} bytes that begin with {data[:2].hex() or 'nothing'} are neither an Avro single "
                "object (c301) nor in the Confluent wire format (00)",
            )
        reader = self._readers.get(header)
        if reader is None:
            reader = self._readers[header] = find(header)
        return header, reader

    def _by_fingerprint(self, header: bytes) -> WriterSchema:
        number = int.from_bytes(header[2:], "little")
        schema = self._schemas.get(number)
        if schema is None:
            raise UnknownSchemaError(
                "value", f"the writer schema {number:016x} is not known here", hint=_UPGRADE
            )
        return WriterSchema(schema)

    def _by_number(self, header: bytes) -> WriterSchema:
        if self._registry is None:
            raise UnknownSchemaError(
                "value",
                "is in the Confluent wire format, and no schema registry is configured",
                hint="Hand one over: open_log(url, registry=ConfluentRegistry(address)).",
            )
        return WriterSchema(self._registry.schema(int.from_bytes(header[1:], "big")))

    def _verify(self, event: EventEnvelope, data: bytes, verifier: Verifier) -> None:
        if event.signature is None:
            verifier.verify(event)
            return
        header, reader = self._reader(data)
        record = reader.read(data, len(header))
        if any(name.startswith("signature.") for name in event.extensions):
            raise SignatureError("signature", "has fields that this version does not know, and cannot verify")
        verifier.verify(event, _texts(record))
        # The signature vouches for the values; that these are the only bytes for them is seen here.
        if not _in_canonical_order(record) or header + reader.write(record) != data:
            raise SignatureError(
                "value", f"{event.event_id} is signed and not encoded in its one canonical way"
            )


def _texts(record: Mapping[str, Any]) -> dict[str, bytes]:
    """The JSON texts of a record, by the name of the field in the JSON form of the event."""
    texts = {name: record[name] for name in ("payload", "metadata") if name in record}
    # A dotted name stands for a field of a part (`producer.x`), whose text is not a member by itself.
    texts.update((n, t) for n, t in (record.get("extensions") or {}).items() if "." not in n)
    return {name: text.encode() if isinstance(text, str) else text for name, text in texts.items()}


def _in_canonical_order(record: Mapping[str, Any]) -> bool:
    """What neither the signature nor encoding again shows: order and text of extensions."""
    extensions: Mapping[str, str] = record.get("extensions") or {}
    dotted = (name for name in extensions if "." in name)
    return list(extensions) == sorted(extensions) and all(
        canonical_text(parse_json(extensions[name].encode(), name), name).decode() == extensions[name]
        for name in dotted
    )


def _extensions(envelope: EventEnvelope, write: Callable[[Any, str], bytes]) -> dict[str, bytes]:
    """JSON text of the extensions, in the order of their names."""
    return {name: write(value, f"extensions.{name}") for name, value in sorted(envelope.extensions.items())}
