"""The sender's own proof of a request, kept on the copies that its receiver makes.

An owner copies a request from its inbox into its journal and signs the copy with its own key. So that the
journal alone proves who asked, the copy has the header `noesium_sender`: what is needed to make the sender's
record again, bit by bit, and the proof that the sender put on it. It is one JSON object:

    {"proof": "1 alice-1 0 1  q6V…", "topic": "noesium.agent.clerk.inbox", "partition": 3, "at": 1767225600}

The sender's record has the copy's key, value, standard headers and `noesium_origin`. Where its headers
differ, `headers` lists them as pairs, bytes as Latin-1 text; where its value does, `value` has it in base64.
`at` is when the log took it, as the receiver read it, in milliseconds since the epoch. A proof that does not
fit into `SENDER_BYTES` is not kept.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from noesium_stream.errors import SignatureError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.record_proofs import PROOF, UNSIGNED
from noesium_stream.event.trust.speaking import owner_of
from noesium_stream.event.trust.trusted_key import AGENT
from noesium_stream.log.encoded_event import encoded_event
from noesium_stream.log.headers import (
    CE_ID,
    CE_SOURCE,
    CE_SPECVERSION,
    CE_TIME,
    CE_TYPE,
    LATEST_MS,
    ORIGIN,
    SENDER,
    TRACEPARENT,
    header_value,
)
from noesium_stream.log.prepare import header_text, standard_headers
from noesium_stream.log.record import Record

SENDER_BYTES: Final = 8_192
"""Upper bound of the header `noesium_sender`."""

_COMMON: Final = frozenset({CE_SPECVERSION, CE_ID, CE_TYPE, CE_SOURCE, CE_TIME, TRACEPARENT, ORIGIN})
"""Headers that a copy shares with its original."""


class SenderRecord(NamedTuple):
    """A record as its sender wrote it; its key is that of the copy.

    Attributes:
        topic, partition: where it was written.
        at_ms: when the log took it, as the receiver says (milliseconds since the epoch).
        headers: all of them, the proof included.
        value: its bytes.
    """

    topic: str
    partition: int
    at_ms: int
    headers: list[tuple[str, bytes | None]]
    value: bytes


def copied(event: EventEnvelope, source: Record) -> tuple[EventEnvelope, list[tuple[str, bytes]]]:
    """The event for a copy of a received record, and the header with its sender's proof.

    Without a verified signature there is no header. With one the copy keeps the bytes of the value, if they
    have the form that this process writes itself.

    Raises:
        CorruptRecordError: the record's signature does not hold.
    """
    if source.signed_by is None:
        return event, []
    as_it_is = source.has_own_frame
    kept = source.header(SENDER) if _is_forwarded(source) else _made(event, source, as_it_is)
    if kept is None or len(kept) > SENDER_BYTES:
        return event, []
    return _with_bytes(event, source.value) if as_it_is else event, [(SENDER, kept)]


def sender_record(headers: Sequence[tuple[str, bytes | None]], value: bytes) -> SenderRecord | None:
    """The sender's record of a copy with these headers and this value; None: its proof was not kept.

    Its proof is not verified here.

    Raises:
        SignatureError: the header with the proof is malformed.
    """
    found = [content for name, content in headers if name == SENDER]
    if not found:
        return None
    try:
        (data,) = found
        if data is None or len(data) > SENDER_BYTES:
            raise ValueError
        said = json.loads(data)
        topic, proof = (checked_text(said[name]) for name in ("topic", "proof"))
        partition, at_ms = said["partition"], said["at"]
        if not (_is_whole(partition, 2**31 - 1) and _is_whole(at_ms, LATEST_MS)):
            raise TypeError
        own = said.get("headers")
        original = [pair for pair in headers if pair[0] in _COMMON]
        if own is not None:
            original = [_pair(pair) for pair in own]
        if "value" in said:
            value = base64.b64decode(said["value"].encode(), validate=True)
        original.append((PROOF, proof.encode("ascii")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error):
        raise SignatureError(SENDER, "has another form than a receiver writes") from None
    return SenderRecord(topic, partition, at_ms, original, value)


def _made(event: EventEnvelope, source: Record, as_it_is: bool) -> bytes | None:
    proof = header_value(source.raw_headers, PROOF)
    if proof is None or not proof.isascii():
        return None
    topic, partition = source.signed_place
    said: dict[str, Any] = {
        "proof": proof.decode(),
        "topic": topic,
        "partition": partition,
        "at": source.timestamp_ms,
    }
    own: list[tuple[str, bytes | None]] = [pair for pair in source.raw_headers if pair[0] not in UNSIGNED]
    if own != [*standard_headers(event), *(pair for pair in own if pair[0] == ORIGIN)]:
        said["headers"] = [(name, None if data is None else data.decode("latin-1")) for name, data in own]
    if not as_it_is:
        if len(source.value) > SENDER_BYTES:
            return None
        said["value"] = base64.b64encode(source.value).decode()
    return json.dumps(said, separators=(",", ":")).encode()


def _with_bytes(event: EventEnvelope, value: bytes) -> EventEnvelope:
    """The event, to be written as these bytes."""

    def decoded(_: bytes) -> EventEnvelope:
        return event

    return encoded_event((event.event_type, value, header_text(event), decoded))


def _is_forwarded(source: Record) -> bool:
    """Whether an owner of the agent's topics forwarded the record with its sender's proof."""
    signed_by, owner = source.signed_by, owner_of(source.signed_place[0])
    if signed_by is None or owner is None or source.header(SENDER) is None:
        return False
    return signed_by.speaks(AGENT + owner)


def _pair(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, list):
        raise TypeError
    name, text = pair
    return checked_text(name), None if text is None else checked_text(text).encode("latin-1")


def checked_text(text: object) -> str:
    """A text that has bytes, as names of topics and headers have.

    Raises:
        TypeError, ValueError: it is something else.
    """
    if not isinstance(text, str):
        raise TypeError("is no text")
    text.encode(errors="surrogateescape")
    return text


def _is_whole(number: object, most: int) -> bool:
    return type(number) is int and 0 <= number <= most
