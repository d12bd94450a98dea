"""Canonical JSON (RFC 8785): the same value has the same bytes for every writer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import rfc8785

from noesium_stream.errors import EventValidationError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.envelope_fields import MAX_INT
from noesium_stream.event.payload.value import refuse_non_json, short_path

_WRITTEN_AS_DIGITS: Final = 1e21
"""ECMAScript writes numbers below this without an exponent, like whole numbers."""


def canonical_json(value: Any, field: str = "value") -> bytes:
    """Encode a JSON value in the RFC 8785 form.

    Raises:
        EventValidationError: it contains a whole number beyond ±(2^53-1), NaN, an infinity, a key that is not
            a string, or a value that is not JSON; names the path.
    """
    refuse_non_json(value, field, -MAX_INT, MAX_INT)
    return rfc8785.dumps(value)


def canonical_text(value: Any, field: str) -> bytes:
    """As `canonical_json`, but only for values that parsing the text restores.

    Raises:
        EventValidationError: also for floats such as 1e17, whose canonical form reads as a whole number
            beyond 2^53-1.
    """
    _refuse_large_floats(value, field)
    return canonical_json(value, field)


def canonical_envelope(event: EventEnvelope, texts: Mapping[str, bytes] | None = None) -> bytes:
    """The signed bytes: the canonical form of the event without its signature (RFC-0002).

    `texts` holds the JSON text of top-level fields as received; it is used unchanged. If a text is not
    canonical the signature does not match, because a signer signs only canonical text. So verifying a large
    event takes only the time to hash it.

    Raises:
        EventValidationError: payload, metadata or an extension has no canonical form.
    """
    given = texts or {}
    form = event.to_dict()
    form.pop("signature", None)
    parts: dict[str, bytes] = {}
    for field, value in form.items():
        text = given.get(field)
        parts[field] = canonical_text(value, field) if text is None else text
    members = (rfc8785.dumps(name) + b":" + parts[name] for name in sorted(parts, key=_utf16))
    return b"{" + b",".join(members) + b"}"


def _utf16(name: str) -> bytes:
    """Sort key of a name: RFC 8785 sorts names by their UTF-16 code units."""
    return name.encode("utf-16-be")


def _refuse_large_floats(value: Any, field: str) -> None:
    if isinstance(value, float):
        if math.isfinite(value) and MAX_INT < abs(value) < _WRITTEN_AS_DIGITS:
            raise EventValidationError(field, f"{value} would be read again as a whole number beyond 2^53-1")
    elif isinstance(value, dict):
        field = short_path(field)
        for key, item in value.items():
            _refuse_large_floats(item, f"{field}.{key[:80]}")
    elif isinstance(value, (list, tuple)):
        field = short_path(field)
        for index, item in enumerate(value):
            _refuse_large_floats(item, f"{field}.{index}")
