"""Events in any known writer schema: fastavro reads them, field names bring them into today's form.

An older schema lacks fields, which then have their defaults; a newer one has more, which are kept in
`extensions` and written again. Both are found by name; what is required and missing is refused.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final, cast

import fastavro

from noesium_stream.errors import EventValidationError, UnknownSchemaError
from noesium_stream.event.envelope import EventEnvelope, from_fields
from noesium_stream.event.guard import Guard
from noesium_stream.event.json_text import parse_json, parse_object
from noesium_stream.event.parts import short

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


class WriterSchema:
    """A writer schema, ready to read bodies that were written in it."""

    def __init__(self, schema: Any) -> None:
        self.schema = _without_logical_types(schema)
        self._parsed = _parsed(self.schema)
        self._guard = Guard(self._parsed)
        self.names = frozenset(field["name"] for field in self.schema.get("fields", ()))

    def read(self, data: bytes, start: int) -> dict[str, Any]:
        """The fields of the body that begins at `start`, as they were written.

        Raises:
            EventValidationError: it is not exactly one value of this schema.
        """
        self._guard.check(data, start)
        try:
            record = fastavro.schemaless_reader(io.BytesIO(data[start:]), self._parsed, None)
        except Exception as error:
            # The guard has found nothing, so this is a schema that means something else to fastavro.
            raise EventValidationError("value", f"cannot be read by its writer schema: {error!r}") from error
        return cast("dict[str, Any]", record)

    def write(self, record: Mapping[str, Any]) -> bytes:
        """The body of these fields; empty when they do not fit the schema."""
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, self._parsed, record)
        except (ValueError, TypeError, KeyError, OverflowError, AttributeError):
            return b""
        return out.getvalue()


def from_record(record: Mapping[str, Any]) -> EventEnvelope:
    """The event of an Avro record, whatever version of the schema it was written in.

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
    """JSON text as bytes; writer schemas of others may hold anything in its place."""
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
    """The same schema with plain numbers, so that times come as the milliseconds that they are."""
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, Mapping):
        return {key: _without_logical_types(part) for key, part in schema.items() if key != "logicalType"}
    return schema
