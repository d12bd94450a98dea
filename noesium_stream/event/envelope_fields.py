"""Parts of an envelope, and the validation of its fields (RFC-0002)."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from noesium_stream.clock import to_ms
from noesium_stream.errors import EventValidationError
from noesium_stream.event.limits import MAX_EVENT_TYPE, MAX_NAME

SPEC_VERSION: Final = "1.0.0"
MAX_INT: Final = 2**53 - 1
"""Largest whole number of an envelope: every JSON implementation can represent it (RFC 8785)."""
MAX_TIMESTAMP_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: the last moment that RFC 3339 can represent."""

UUID7: Final = "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
_UUID7 = re.compile(UUID7)
_EVENT_TYPE = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*){1,3}")
_SEMVER = re.compile(r"(?:0|[1-9][0-9]{0,8})\.(?:0|[1-9][0-9]{0,8})\.(?:0|[1-9][0-9]{0,8})")
_TRACE_ID = re.compile(r"[0-9a-f]{32}")
_SPAN_ID = re.compile(r"[0-9a-f]{16}")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,3})?(?:Z|\+00:00)", re.ASCII)


@dataclass(frozen=True, slots=True)
class AgentRef:
    """The producer of an event: the permanent agent (`agent_id`, `agent_type`) and its current process."""

    agent_id: str
    agent_type: str
    runtime_id: str = "local"
    instance_id: str = ""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Position in a workflow: W3C trace id (32 hex digits), span id (16), and delegation depth."""

    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    depth: int = 0

    def child(self, span_id: str, *, deeper: bool = False) -> TraceContext:
        """A child span; `deeper` if it belongs to the agent that was delegated to."""
        return trusted_trace(self.trace_id, span_id, self.span_id, self.depth + deeper)


class TraceDraft:
    """A trace context under construction; see `envelope.EnvelopeDraft`.

    It takes 0.09 µs, a call of `trusted_trace` 0.13.
    """

    __slots__ = TraceContext.__slots__


def trusted_trace(trace_id: str, span_id: str, parent_span_id: str | None, depth: int) -> TraceContext:
    """Create a trace context from valid fields, three times as fast as its frozen dataclass does."""
    trace: Any = TraceDraft()
    trace.trace_id, trace.span_id, trace.parent_span_id, trace.depth = (
        trace_id,
        span_id,
        parent_span_id,
        depth,
    )
    trace.__class__ = TraceContext
    return cast(TraceContext, trace)


@dataclass(frozen=True, slots=True)
class SignatureBlock:
    """A signature over the canonical envelope (RFC 8785) without this block; base64, unpadded url-safe."""

    algorithm: str
    public_key_id: str
    signature: str


Part = TypeVar("Part", AgentRef, TraceContext, SignatureBlock)


def read_part(part: type[Part], field: str, value: object, extensions: dict[str, Any]) -> Part:
    """Read a part of an envelope from its fields by name; unknown fields are kept in `extensions`.

    Raises:
        EventValidationError: it is not a mapping, or a field without a default is missing.
    """
    if not isinstance(value, Mapping):
        raise EventValidationError(
            field, "is missing" if value is None else f"{short(value)} is not an object"
        )
    known: tuple[str, ...] = part.__slots__
    for name, item in value.items():
        if name not in known:
            keep_unknown(extensions, f"{field}.{name}", item)
    try:
        return part(**{name: value[name] for name in known if name in value})
    except TypeError:
        missing = next(name for name in known if name not in value)
        raise EventValidationError(f"{field}.{missing}", "is missing") from None


def keep_unknown(extensions: dict[str, Any], name: str, value: object) -> None:
    """Keep an unknown field; null means absent, as for known fields.

    Raises:
        EventValidationError: `extensions` already has this name.
    """
    if value is None:
        return
    if name in extensions:
        raise EventValidationError(f"extensions.{name}", "occurs twice")
    extensions[name] = _json_value(value)


def _json_value(value: Any) -> Any:
    """Convert a value from Avro or JSON to JSON; bytes become base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_value(item) for item in value]
    return value


def read_timestamp(value: object) -> int:
    """Milliseconds of an RFC 3339 timestamp in UTC with at most three fractional digits.

    Raises:
        EventValidationError: it is not such a timestamp.
    """
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        try:
            return to_ms(datetime.fromisoformat(value))
        except ValueError:
            pass  # a month 13 or an hour 25: refused below, with the same message
    raise EventValidationError(
        "timestamp", f"{short(value)} is not a UTC time with milliseconds such as 2026-03-01T12:00:00.000Z"
    )


def check_kind(spec_version: object, event_type: object, event_version: object) -> None:
    """Check specification version, type and event version; raises `EventValidationError`."""
    _match(_SEMVER, "spec_version", spec_version, "a semantic version such as 1.0.0")
    if isinstance(event_type, str) and len(event_type) > MAX_EVENT_TYPE:
        raise EventValidationError("event_type", f"has more than {MAX_EVENT_TYPE} characters")
    _match(_EVENT_TYPE, "event_type", event_type, "two to four dotted lower-case parts")
    _match(_SEMVER, "event_version", event_version, "a semantic version such as 1.0.0")


def check_id(event_id: object) -> None:
    """Check an event's id; raises `EventValidationError`."""
    _match(_UUID7, "event_id", event_id, "a UUIDv7 in lower case (RFC 9562)")


def check_producer(producer: object) -> None:
    """Check all fields of an `AgentRef`; raises `EventValidationError`."""
    if not isinstance(producer, AgentRef):
        raise EventValidationError("producer", f"{short(producer)} is not an AgentRef")
    check_text("producer.agent_id", producer.agent_id)
    check_text("producer.agent_type", producer.agent_type)
    check_text("producer.runtime_id", producer.runtime_id)
    if producer.instance_id != "":
        check_text("producer.instance_id", producer.instance_id)


def check_trace(trace: object) -> None:
    """Check all fields of a `TraceContext`; raises `EventValidationError`."""
    if not isinstance(trace, TraceContext):
        raise EventValidationError("trace", f"{short(trace)} is not a TraceContext")
    _match(_TRACE_ID, "trace.trace_id", trace.trace_id, "32 lower-case hex digits")
    _match(_SPAN_ID, "trace.span_id", trace.span_id, "16 lower-case hex digits")
    if trace.parent_span_id is not None:
        _match(_SPAN_ID, "trace.parent_span_id", trace.parent_span_id, "16 lower-case hex digits")
    check_whole("trace.depth", trace.depth)


def check_signature(signature: object) -> None:
    """Check the fields of a `SignatureBlock` (not the signature itself); raises `EventValidationError`."""
    if not isinstance(signature, SignatureBlock):
        raise EventValidationError("signature", f"{short(signature)} is not a SignatureBlock")
    for name in SignatureBlock.__slots__:
        check_text(f"signature.{name}", getattr(signature, name))


def check_text(field: str, value: object) -> None:
    """Check for a non-empty text of at most `MAX_NAME` characters in UTF-8; raises `EventValidationError`."""
    if not isinstance(value, str) or not value:
        raise EventValidationError(field, f"{short(value)} is not a text of at least one character")
    if len(value) > MAX_NAME:
        raise EventValidationError(field, f"has {len(value):,} characters, and {MAX_NAME:,} are allowed")
    check_utf8(field, value)


def check_utf8(field: str, value: str) -> None:
    """Check for a text that UTF-8 can encode; raises `EventValidationError`."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise EventValidationError(
                field, f"{short(value)} holds half a surrogate pair, which UTF-8 cannot write"
            ) from None


def check_whole(field: str, value: object, maximum: int = MAX_INT) -> None:
    """Check for a whole number from 0 to `maximum`; raises `EventValidationError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise EventValidationError(field, f"{short(value)} is not a whole number from 0 to {maximum}")


def _match(pattern: re.Pattern[str], field: str, value: object, wanted: str) -> None:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise EventValidationError(field, f"{short(value)} is not {wanted}")


def short(value: object) -> str:
    """The `repr`, shortened to fit on a line."""
    if isinstance(value, (str, bytes)) and len(value) > 80:
        value = value[:80]
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
