"""The form of an exported run: JSON lines, each chained to the one before it.

    {"format":"noesium-proof/1","namespace":"noesium","agent_type":"clerk","run_id":"0199…","at":1767225600000,
     "exporter":"ops-1","sha256":"…"}
    {"topic":"noesium.agent.clerk.journal","partition":3,"offset":17,"at":1767225599000,"key":"0199…",
     "headers":[["ce_id","MDE5…"],…],"value":"wwE…","sha256":"…"}
    …
    {"records":12,"keys":["clerk-1"],"sha256":"…"}
    {"key":"ops-1","signature":"…"}

A record stands there as it is on the log: `at` is when the log took it (milliseconds since the epoch), values
of headers and the record's value are in base64, a null value of a header is null. `sha256` is the hash, in
hexadecimal digits, of the one of the line before (nothing on the first line) and of its own line in front of
`,"sha256"`. `keys` are the ids of the keys that signed the records. The last line is there if the exporter
has a key: its Ed25519 signature, in url-safe base64, of `noesium proof file 1`, a line end, and the last
`sha256`.

Who reads a file believes none of it: lines have a bound, every field has a type.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from noesium_stream.errors import ConfigError
from noesium_stream.event.limits import MAX_NAME
from noesium_stream.log.headers import LATEST_MS
from noesium_stream.log.record import Record
from noesium_stream.log.sender_proof import checked_text

FORMAT: Final = "noesium-proof/1"
MAX_LINE: Final = 4_000_000
"""Bytes of a line: twice what the largest record of a journal takes."""

MAX_LINES: Final = 2_000_000

_END: Final = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\n')
_END_BYTES: Final = 78
_MAX_OFFSET: Final = 2**63 - 1
_Headers = list[tuple[str, bytes | None]]


class Head(NamedTuple):
    """The first line: of which run the file is, when it was made (ms), and by whose key."""

    namespace: str
    agent_type: str
    run_id: str
    at_ms: int
    exporter: str | None


class FileRecord(NamedTuple):
    """A record of the file, as it is on the log."""

    topic: str
    partition: int
    offset: int
    at_ms: int
    key: str
    headers: _Headers
    value: bytes


class Tail(NamedTuple):
    """The line behind the records: how many there are, and the keys that signed them."""

    records: int
    keys: tuple[str, ...]


class Seal(NamedTuple):
    """The exporter's signature; `signed` is what it covers."""

    key_id: str
    signature: str
    signed: bytes


class Line(NamedTuple):
    """A line of the file.

    Attributes:
        number: from 1.
        content: what it holds; None: it is malformed.
        is_chained: whether its hash is that of the line and of the one before it.
        problem: what is malformed; empty: nothing.
    """

    number: int
    content: Head | FileRecord | Tail | Seal | None
    is_chained: bool
    problem: str = ""


class LineWriter:
    """Makes the lines of a file, each chained to the one before it."""

    def __init__(self) -> None:
        self._before = b""

    def head(self, head: Head) -> bytes:
        """The first line."""
        return self._line({"format": FORMAT, **_renamed(head._asdict())})

    def record(self, record: Record) -> bytes:
        """The line of a record.

        Raises:
            ConfigError: the record is larger than any that a journal takes.
        """
        headers = [
            [name, None if content is None else base64.b64encode(content).decode()]
            for name, content in record.raw_headers
        ]
        line = self._line(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "at": record.timestamp_ms,
                "key": record.key,
                "headers": headers,
                "value": base64.b64encode(record.value).decode(),
            }
        )
        if len(line) > MAX_LINE:
            raise ConfigError(f"{record} is larger than any record that is exported.")
        return line

    def tail(self, tail: Tail) -> bytes:
        """The line behind the records."""
        return self._line(tail._asdict())

    @property
    def to_sign(self) -> bytes:
        """What an exporter signs behind the last line."""
        return _to_sign(self._before)

    def seal(self, key_id: str, signature: str) -> bytes:
        """The line with the exporter's signature."""
        return _dump({"key": key_id, "signature": signature}) + b"\n"

    def _line(self, fields: Mapping[str, Any]) -> bytes:
        body = _dump(fields)[:-1]
        self._before = _hash(self._before, body)
        return b'%b,"sha256":"%b"}\n' % (body, self._before)


def read_lines(path: Path) -> Iterator[Line]:
    """Read the lines of a file, one after the other; a line that is too long is the last one.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield from _lines(iter(lambda: file.readline(MAX_LINE + 1), b""))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from None


def _lines(texts: Iterable[bytes]) -> Iterator[Line]:
    before = b""
    for number, text in enumerate(texts, 1):
        if number > MAX_LINES or len(text) > MAX_LINE:
            yield Line(number, None, False, "is longer than a line may be, or one too many")
            return
        line, before = _parsed(number, text, before)
        yield line


def _parsed(number: int, text: bytes, before: bytes) -> tuple[Line, bytes]:
    """A line, and the hash that the next one is chained to: the one that this line states."""
    ends = _END.fullmatch(text, max(0, len(text) - _END_BYTES))
    body = text if ends is None else text[: ends.start()] + b"}"
    content, problem = None, "its form is not that of a line of an exported run"
    try:
        found = json.loads(body)
        if isinstance(found, dict):
            content, problem = _content(found, number, before, sealed=ends is None), ""
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    if ends is None:
        return Line(number, content, isinstance(content, Seal), problem), before
    stated = ends[1]
    return Line(number, content, _hash(before, text[: ends.start()]) == stated, problem), stated


def _content(found: dict[str, Any], number: int, before: bytes, *, sealed: bool) -> Any:
    if sealed:
        _only(found, "key", "signature")
        return Seal(checked_text(found["key"]), checked_text(found["signature"]), _to_sign(before))
    if number == 1:
        return _head(found)
    if "records" in found:
        _only(found, "records", "keys")
        keys = [checked_text(key) for key in _list(found["keys"])]
        return Tail(_whole(found["records"], _MAX_OFFSET), tuple(keys))
    _only(found, "topic", "partition", "offset", "at", "key", "headers", "value")
    return FileRecord(
        checked_text(found["topic"]),
        _whole(found["partition"], 2**31 - 1),
        _whole(found["offset"], _MAX_OFFSET),
        _whole(found["at"], LATEST_MS),
        checked_text(found["key"]),
        [_header(pair) for pair in _list(found["headers"])],
        _bytes(found["value"]),
    )


def _head(found: dict[str, Any]) -> Head:
    _only(found, "format", "namespace", "agent_type", "run_id", "at", "exporter")
    if found["format"] != FORMAT:
        raise ValueError("unknown format")
    exporter = found["exporter"]
    return Head(
        _name(found["namespace"]),
        _name(found["agent_type"]),
        _name(found["run_id"]),
        _whole(found["at"], LATEST_MS),
        None if exporter is None else _name(exporter),
    )


def _header(pair: object) -> tuple[str, bytes | None]:
    name, text = _list(pair)
    return checked_text(name), None if text is None else _bytes(text)


def _name(text: object) -> str:
    found = checked_text(text)
    if not 0 < len(found) <= MAX_NAME:
        raise ValueError("is no name")
    return found


def _only(found: dict[str, Any], *names: str) -> None:
    if set(found) != set(names):
        raise ValueError("other fields")


def _list(found: object) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError("is no list")
    return found


def _whole(number: object, most: int) -> int:
    if type(number) is not int or not 0 <= number <= most:
        raise TypeError("is no such number")
    return number


def _bytes(text: object) -> bytes:
    data = base64.b64decode(checked_text(text).encode(), validate=True)
    if base64.b64encode(data).decode() != text:
        raise ValueError("is in another base64")
    return data


def _renamed(fields: dict[str, Any]) -> dict[str, Any]:
    return {"at" if name == "at_ms" else name: value for name, value in fields.items()}


def _dump(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _hash(before: bytes, body: bytes) -> bytes:
    return sha256(before + body).hexdigest().encode()


def _to_sign(last: bytes) -> bytes:
    return b"noesium proof file 1\n" + last
