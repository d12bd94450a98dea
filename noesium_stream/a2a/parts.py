"""Conversion between JSON values and the parts of messages and artifacts.

A2A carries JSON as `google.protobuf.Value`, where each number is a double and fields have no order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, Final

from a2a.types import Message, Part
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict, ParseDict

from noesium_stream.errors import EventValidationError

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain"
MOST_DEPTH: Final = 90
"""Nesting depth of a JSON value in a message; protobuf's own limit counts more levels than these."""
_EXACT: Final = 2.0**53
_MOST_PARTS: Final = 100


def part_of(value: Any) -> Part:
    """Make a part that carries a JSON value: a text as text, others as data.

    What a double or protobuf's nesting does not hold is sent as a text of JSON.
    """
    if isinstance(value, str):
        return Part(text=value, media_type=TEXT_TYPE)
    if not fits_data(value):
        return Part(text=json.dumps(value, ensure_ascii=False), media_type=JSON_TYPE)
    return Part(data=ParseDict(value, struct_pb2.Value()), media_type=JSON_TYPE)


def value_of(part: Part) -> Any:
    """Return the JSON value of a part with data, or its text; whole numbers are integers again.

    Raises:
        EventValidationError: it has a number that may have lost digits on the way, or is a file.
    """
    kind = part.WhichOneof("content")
    if kind == "text":
        if part.media_type == JSON_TYPE:
            return _parsed(part.text)
        return part.text
    if kind == "data":
        return _exact(MessageToDict(part.data), "data")
    raise EventValidationError("parts", "only text and data are taken, no files and no URLs")


def text_in(parts: Iterable[Part]) -> str | None:
    """Return the text of parts that are all texts, lines joined; None: one is something else, or none is."""
    texts = []
    for part in parts:
        if part.WhichOneof("content") != "text" or part.media_type == JSON_TYPE:
            return None
        texts.append(part.text)
    return "\n".join(texts) if texts else None


def single_value(message: Message) -> Any:
    """Return the value of a message: that of its one part of data, or its text.

    Raises:
        EventValidationError: it has other parts.
    """
    if len(message.parts) > _MOST_PARTS:
        raise EventValidationError("message.parts", f"are {len(message.parts)}, and at most {_MOST_PARTS}")
    text = text_in(message.parts)
    if text is not None:
        return text
    if len(message.parts) != 1:
        raise EventValidationError("message.parts", "are texts, or one part of data: a JSON object")
    return value_of(message.parts[0])


def to_struct(value: dict[str, Any]) -> struct_pb2.Struct:
    """Make a `Struct` from a JSON object."""
    return ParseDict(value, struct_pb2.Struct())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise EventValidationError("parts", f"a part of {JSON_TYPE} is no JSON: {error}") from None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def fits_data(value: Any, depth: int = MOST_DEPTH) -> bool:
    """Whether protobuf carries a JSON value as it is: not too deep, and no number too large for a double."""
    if isinstance(value, dict):
        return depth > 0 and all(fits_data(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return depth > 0 and all(fits_data(item, depth - 1) for item in value)
    return not isinstance(value, int) or abs(value) <= _EXACT


def _exact(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        return {name: _exact(value[name], f"{path}.{name}") for name in sorted(value)}
    if isinstance(value, list):
        return [_exact(item, f"{path}.{place}") for place, item in enumerate(value)]
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise EventValidationError(path[:200], "is no number of JSON")
    if not value.is_integer():
        return value
    if abs(value) > _EXACT:
        raise EventValidationError(
            path[:200], "is a whole number beyond 2^53, which A2A does not carry exactly: send it as a text"
        )
    return int(value)
