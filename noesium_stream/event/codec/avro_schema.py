"""The Avro schema of the envelope, and all its released versions by fingerprint.

Decision record: payload, metadata and extensions are JSON text inside Avro. Their schemas belong to the event
types and change with them; the envelope's does not. Fields are ordered for readers: fields that repeat from
event to event (kind and producer) come first, so that they are decoded once; fields of fixed length come
next; fields that are usually absent come last.

`avro/` holds every version that was ever written, in files named by fingerprint, including the current one.
None of them may ever be removed or changed: events on old logs are written in them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastavro.schema import fingerprint as _fastavro_fingerprint
from fastavro.schema import to_parsing_canonical_form

AvroSchema = dict[str, Any]

_RELEASED: Final = Path(__file__).parent / "avro"


def _optional(avro_type: Any) -> list[Any]:
    return ["null", avro_type]


def _field(name: str, avro_type: Any, doc: str) -> dict[str, Any]:
    field = {"name": name, "type": avro_type, "doc": doc}
    if isinstance(avro_type, list):
        field["default"] = None
    return field


_PRODUCER: Final = {
    "type": "record",
    "name": "AgentRef",
    "fields": [
        _field("agent_id", "string", "The agent for good; outlives processes."),
        _field("agent_type", "string", "What kind of agent it is."),
        _field("runtime_id", "string", "Where it runs."),
        _field("instance_id", "string", "The live process."),
    ],
}
_TRACE: Final = {
    "type": "record",
    "name": "TraceContext",
    "fields": [
        _field("trace_id", "string", "W3C trace id, 32 hex digits; constant through a workflow."),
        _field("span_id", "string", "W3C span id, 16 hex digits; unique per event."),
        _field("parent_span_id", _optional("string"), "The span above this one."),
        _field("depth", "long", "Grows by one with each delegation."),
    ],
}
_SIGNATURE: Final = {
    "type": "record",
    "name": "SignatureBlock",
    "fields": [
        _field("algorithm", "string", "Ed25519."),
        _field("public_key_id", "string", "Which key verifies it."),
        _field("signature", "string", "Over the RFC 8785 form of the rest; base64, url-safe, unpadded."),
    ],
}

ENVELOPE_SCHEMA: Final[AvroSchema] = {
    "type": "record",
    "name": "EventEnvelope",
    "namespace": "noesium.event",
    "doc": "One immutable event (RFC-0002).",
    "fields": [
        _field("spec_version", "string", "Version of the envelope's specification."),
        _field("event_type", "string", "Two to four dotted lower-case parts."),
        _field("event_version", "string", "Semantic version of the payload's schema."),
        _field("producer", _PRODUCER, "Who says it."),
        _field("event_id", "string", "UUIDv7, RFC 9562."),
        _field("trace", _TRACE, "Where in a workflow."),
        _field("timestamp", {"type": "long", "logicalType": "timestamp-millis"}, "The producer's time, UTC."),
        _field("causation_id", _optional("string"), "The event that directly caused this one."),
        _field("correlation_id", _optional("string"), "Shared by the events of one task."),
        _field("idempotency_key", _optional("string"), "The same key of one producer is a duplicate."),
        _field("partition_key", _optional("string"), "What orders it among others."),
        _field("ttl_ms", _optional("long"), "A command older than this is not executed."),
        _field("payload", "string", "JSON text, valid by the JSON Schema of type and version."),
        _field("metadata", "string", "JSON text; never changes the meaning of the payload."),
        _field("stream_sequence", _optional("long"), "Number within a stream, from 0."),
        _field("stream_final", _optional("boolean"), "Whether the stream ends here."),
        _field("signature", _optional(_SIGNATURE), "A signature over all other fields."),
        {
            "name": "extensions",
            "type": {"type": "map", "values": "string"},
            "doc": "Optional fields of newer specifications by name, each as JSON text.",
            "default": {},
        },
    ],
}


def fingerprint(schema: Any) -> int:
    """CRC-64-AVRO of a schema's parsing canonical form, as a number."""
    return int.from_bytes(
        bytes.fromhex(_fastavro_fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")), "little"
    )


def fingerprint_name(schema: Any) -> str:
    """The fingerprint as 16 hex digits, most significant first."""
    return f"{fingerprint(schema):016x}"


@cache
def envelope_fingerprint() -> int:
    """The fingerprint of the current envelope schema."""
    return fingerprint(ENVELOPE_SCHEMA)


@cache
def released_schemas() -> dict[int, AvroSchema]:
    """Every envelope schema ever released, by fingerprint; the current one included."""
    schemas = [json.loads(path.read_text("utf-8")) for path in sorted(_RELEASED.glob("*.avsc"))]
    return {fingerprint(schema): schema for schema in [*schemas, ENVELOPE_SCHEMA]}


def schema_text(schema: Any) -> str:
    """A schema as stored in a file: indented by two spaces, in its own order, with a final newline."""
    return json.dumps(schema, indent=2) + "\n"
