"""Decoding of events in any known writer schema with fastavro; fields are mapped to today's form by name.

Signatures are checked here too, against the very bytes that were read. An older schema lacks fields, which
get their defaults. A newer one has more fields, which are kept in `extensions` and written again. A missing
required field is refused.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, cast

import fastavro

from noesium_stream.errors import EventValidationError, SignatureError, UnknownSchemaError
from noesium_stream.event.codec.avro_guard import Guard
from noesium_stream.event.codec.avro_schema import (
    ENVELOPE_SCHEMA,
    envelope_fingerprint,
    fingerprint,
    released_schemas,
)
from noesium_stream.event.envelope import EventEnvelope, from_fields
from noesium_stream.event.envelope_fields import short
from noesium_stream.event.limits import MAX_RECORD_BYTES
from noesium_stream.event.payload.canonical import canonical_text
from noesium_stream.event.payload.value import parse_json, parse_object
from noesium_stream.event.signing import Verifier

SINGLE_OBJECT: Final = b"\xc3\x01"
CURRENT_FRAME: Final = SINGLE_OBJECT + struct.pack("<Q", envelope_fingerprint())
"""Prefix of a body in the current envelope schema."""
_UPGRADE: Final = (
    "It was written by a newer version, or by something else: upgrade, or hand its Avro schema to the "
    "codec (writer_schemas)."
)

_PLAIN: Final = (
    "spec_version",
    "event_id",
    "event_type",
    "event_version",
    "causation_id",
    "correlation_id",
    "idempotency_key",
    "partition_key",
    "ttl_ms",
    "stream_sequence",
    "stream_final",
)


class SchemaRegistry(Protocol):
    """Maps writer schemas to numbers and back; see `confluent_registry.ConfluentRegistry`."""

    def schema_id(self, schema: Any) -> int:
        """The number of a schema, which is registered if it is new."""

    def schema(self, schema_id: int) -> Any:
        """The Avro schema with a number; raises `UnknownSchemaError`."""


class WriterSchemas:
    """The writer schemas that a codec can read, by the prefix of a body.

    Args:
        registry: numbers of writer schemas, for the Confluent wire format.
        writer_schemas: Avro schemas of envelopes that this version does not know.
    """

    def __init__(self, registry: SchemaRegistry | None, writer_schemas: Iterable[Any]) -> None:
        self._registry = registry
        self._schemas = {**released_schemas(), **{fingerprint(schema): schema for schema in writer_schemas}}
        self._readers: dict[bytes, WriterSchema] = {CURRENT_FRAME: WriterSchema(ENVELOPE_SCHEMA)}
        self.frame = CURRENT_FRAME
        """The prefix of every encoded body."""
        if registry is not None:
            self.frame = b"\x00" + struct.pack(">I", registry.schema_id(ENVELOPE_SCHEMA))
            self._readers[self.frame] = self._readers[CURRENT_FRAME]

    def read(self, data: bytes) -> EventEnvelope:
        """Decode an event in any known writer schema.

        Raises:
            UnknownSchemaError: its writer schema is not known here.
            EventValidationError: it cannot be decoded; names field and reason.
        """
        header, reader = self._reader(data)
        return from_record(reader.read(data, len(header)))

    def verify(self, event: EventEnvelope, data: bytes, verifier: Verifier) -> None:
        """Check the signature of an event that was read from `data`.

        Raises:
            SignatureError: it is invalid, or `data` is not the only allowed encoding of the signed values.
        """
        if event.signature is None:
            verifier.verify(event)
            return
        header, reader = self._reader(data)
        record = reader.read(data, len(header))
        if any(name.startswith("signature.") for name in event.extensions):
            raise SignatureError("signature", "has fields that this version does not know, and cannot verify")
        verifier.verify(event, _texts(record))
        # The signature covers values. Check that these are the only bytes that may encode them.
        if not _in_canonical_order(record) or header + reader.write(record) != data:
            raise SignatureError(
                "value", f"{event.event_id} is signed and not encoded in its one canonical way"
            )

    def _reader(self, data: bytes) -> tuple[bytes, WriterSchema]:
        """The prefix of the body, and the writer schema for the rest."""
        if len(data) > MAX_RECORD_BYTES + 10:
            raise EventValidationError("value", f"{len(data)} bytes are more than {MAX_RECORD_BYTES}")
        if data[:2] == SINGLE_OBJECT and len(data) >= 10:
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


class WriterSchema:
    """A writer schema, prepared for decoding bodies."""

    def __init__(self, schema: Any) -> None:
        self.schema = _without_logical_types(schema)
        self._parsed = _parsed(self.schema)
        self._guard = Guard(self._parsed)
        self.names = frozenset(field["name"] for field in self.schema.get("fields", ()))

    def read(self, data: bytes, start: int) -> dict[str, Any]:
        """The fields, as written, of the body that begins at `start`.

        Raises:
            EventValidationError: it is not exactly one value of this schema.
        """
        self._guard.check(data, start)
        try:
            record = fastavro.schemaless_reader(io.BytesIO(data[start:]), self._parsed, None)
        except Exception as error:
            # The guard accepted the bytes, so fastavro interprets this schema differently.
            raise EventValidationError("value", f"cannot be read by its writer schema: {error!r}") from error
        return cast("dict[str, Any]", record)

    def write(self, record: Mapping[str, Any]) -> bytes:
        """The body with these fields; empty if they do not match the schema."""
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._parsed, record)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
            return b""
        return out.getvalue()


def from_record(record: Mapping[str, Any]) -> EventEnvelope:
    """Convert an Avro record of any schema version to an event.

    Raises:
        EventValidationError: a field is missing or malformed.
    """
    rest = dict(record)
    extensions: dict[str, Any] = {
        name: parse_json(_text(text, f"extensions.{name}"), f"extensions.{name}")
        for name, text in (rest.pop("extensions", None) or {}).items()
    }
    fields: dict[str, Any] = {name: rest.pop(name) for name in _PLAIN if name in rest}
    fields["payload"] = parse_object(_text(rest.pop("payload", None), "payload"), "payload")
    if (metadata := rest.pop("metadata", None)) is not None:
        fields["metadata"] = parse_object(_text(metadata, "metadata"), "metadata")
    fields["timestamp_ms"] = rest.pop("timestamp", None)
    return from_fields(fields, rest, extensions)


def _text(value: Any, field: str) -> bytes:
    """JSON text as bytes; foreign writer schemas may have any value in its place."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise EventValidationError(field, f"{short(value)} is not JSON text")


def _parsed(schema: Any) -> Any:
    try:
        parsed = fastavro.parse_schema(schema)
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise UnknownSchemaError("value", f"its writer schema is no Avro schema: {error}") from None
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise UnknownSchemaError("value", "its writer schema is not of a record")
    return parsed


def _without_logical_types(schema: Any) -> Any:
    """The schema with plain numbers, so that times are decoded as milliseconds."""
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, Mapping):
        return {key: _without_logical_types(part) for key, part in schema.items() if key != "logicalType"}
    return schema


def _texts(record: Mapping[str, Any]) -> dict[str, bytes]:
    """The JSON texts of a record, by their field names in the JSON form of the event."""
    texts = {name: record[name] for name in ("payload", "metadata") if name in record}
    # A dotted name is a field within a part (`producer.x`), not a member of its own.
    texts.update((n, t) for n, t in (record.get("extensions") or {}).items() if "." not in n)
    return {name: text.encode() if isinstance(text, str) else text for name, text in texts.items()}


def _in_canonical_order(record: Mapping[str, Any]) -> bool:
    """Whether extensions are in canonical order and text.

    Neither the signature nor encoding again would show that.
    """
    extensions: Mapping[str, str] = record.get("extensions") or {}
    dotted = (name for name in extensions if "." in name)
    return list(extensions) == sorted(extensions) and all(
        canonical_text(parse_json(extensions[name].encode(), name), name).decode() == extensions[name]
        for name in dotted
    )
