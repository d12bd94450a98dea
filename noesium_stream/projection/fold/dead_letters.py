"""Dead letters: events that a projection could not take, as stored in its state file (reason, then record).

A letter holds back the later events of its key: they become letters too, in the order of their offsets, until
they are redriven. A record that cannot be decoded, or whose key cannot be determined, has no key and holds
nothing back.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from noesium_stream.errors import UnknownSchemaError, brief
from noesium_stream.log.headers import header_value
from noesium_stream.log.record import Decoder, Record
from noesium_stream.projection.source_line import line_of

LETTER: Final = b"l"
"""First byte of the row keys of letters."""
HELD: Final = b"h"
"""First byte of the row keys that mark held-back keys."""


class Letter(NamedTuple):
    """One dead letter of a projection.

    Attributes:
        key: the key whose later events it holds back; None holds nothing back.
        reason: why the event was not taken; None: it waits behind another letter of its key.
        where: `FILE:LINE` of the user's code that failed; None if there is none or it is not known.
    """

    key: str | None
    offset: int
    event_type: str
    event_id: str
    error_type: str | None
    reason: str | None
    timestamp_ms: int
    record_key: str
    headers: list[tuple[str, bytes]]
    value: bytes
    where: str | None = None

    @property
    def why(self) -> str | None:
        """Reason and line as one string."""
        if self.reason is None:
            return None
        text = f"{self.error_type}: {self.reason}"
        return text if self.where is None else f"{text} ({self.where})"

    def record(self, topic: str, partition: int, decoder: Decoder) -> Record:
        """The record as it was read from the log."""
        return Record(
            topic,
            partition,
            self.offset,
            self.timestamp_ms,
            self.record_key,
            self.headers,
            self.value,
            decoder,
        )


def letter_of(record: Record, key: str | None, error: BaseException | None) -> Letter:
    """The letter for a record; without an error it waits behind another letter."""
    return Letter(
        key,
        record.offset,
        _header(record, "ce_type"),
        _header(record, "ce_id"),
        None if error is None else type(error).__name__,
        None if error is None else brief(error, 1_000),
        record.timestamp_ms,
        record.key,
        list(record.raw_headers),
        record.value,
        None if error is None else line_of(error),
    )


def position_of(path: Path, letter: Letter) -> str:
    """The position of a letter's record, derived from the state file's path: `TOPIC/PARTITION@OFFSET`."""
    topic, _, partition = path.stem.rpartition("-")
    return f"{topic}/{partition}@{letter.offset}"


def advice_on(letter: Letter) -> str | None:
    """What the user can do about a letter's reason, if known."""
    unknown = f"event_type: {letter.event_type} is not known here"
    if letter.error_type != UnknownSchemaError.__name__ and unknown not in (letter.reason or ""):
        return None
    return (
        f"Name the class of {letter.event_type} in the projection's `events = (…)`, then: noesium dlq redrive"
    )


def letter_key(key: str | None, offset: int) -> bytes:
    """The row key of a letter. Letters of one key are adjacent, in the order of their offsets."""
    return letters_of(key) + offset.to_bytes(8)


def letters_of(key: str | None) -> bytes:
    """Row key prefix of the letters of `key`."""
    name = b"" if key is None else b"k" + key.encode(errors="surrogatepass").hex().encode()
    return LETTER + name + b"/"


def write_letter(letter: Letter) -> bytes:
    """Encode a letter as a row value."""
    fields: dict[str, Any] = letter._asdict()
    value = fields.pop("value")
    fields["headers"] = [[name, base64.b85encode(data or b"").decode()] for name, data in letter.headers]
    head: bytes = orjson.dumps(fields)
    return head + b"\n" + bytes(value)


def read_letter(row: bytes) -> Letter:
    """Decode a letter from a row value."""
    head, _, value = row.partition(b"\n")
    fields = orjson.loads(head)
    fields["headers"] = [(name, base64.b85decode(data)) for name, data in fields["headers"]]
    return Letter(**fields, value=value)


def _header(record: Record, name: str) -> str:
    value = header_value(record.raw_headers, name)
    return "" if value is None else value.decode(errors="replace")
