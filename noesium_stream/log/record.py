"""A record of the log; its envelope is decoded on first access."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol

from noesium_stream.errors import CorruptRecordError, EventValidationError, SignatureError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.record_proofs import RecordVerifier
from noesium_stream.event.sealing.seal import Sealer
from noesium_stream.event.trust.speaking import speaker_problem
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.headers import CE_TYPE, SEQUENCE, TypeFilter, header_value

_VALUE_OF: Final = attrgetter("value")
_MOST_DIGITS: Final = 19


def bytes_of(records: Iterable[Record]) -> int:
    """Total size of the values of records, in bytes."""
    return sum(map(len, map(_VALUE_OF, records)))


class Decoder(Protocol):
    """Decodes bytes to envelopes; see `noesium_stream.event.codec.codec.EnvelopeCodec`."""

    record_verifier: RecordVerifier | None
    sealer: Sealer

    @property
    def frame(self) -> bytes:
        """The prefix of every event that this process encodes."""

    def decode(self, data: bytes) -> EventEnvelope:
        """Decode and validate; raises `EventValidationError`."""

    def decode_unchecked(self, data: bytes) -> EventEnvelope:
        """Decode without the catalogue's validation of the payload; raises `EventValidationError`."""

    def decode_closed(self, data: bytes) -> EventEnvelope:
        """As `decode_unchecked`, with sealed fields as they are on the log."""

    async def know_keys_of(self, records: Sequence[Record]) -> None:
        """Have the keys that records are signed with, before the records are given out."""

    def upcast(self, event: EventEnvelope) -> EventEnvelope:
        """The event in the newest known major version of its type; raises `EventValidationError`."""


class Record:
    """One committed record: position, key, headers, broker's append time (ms), raw value.

    Where signatures are verified, its headers and its event are given out only once its proof holds; what it
    says itself before that is in `raw_headers` and `value`.
    """

    __slots__ = (
        "_decoder",
        "_envelope",
        "_headers",
        "_place",
        "_signed_by",
        "key",
        "offset",
        "partition",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: str,
        headers: Any,
        value: bytes,
        decoder: Decoder,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self._headers = headers
        self._decoder = decoder
        self._envelope: EventEnvelope | None = None

    def __repr__(self) -> str:
        return f"<Record {self.topic}/{self.partition}@{self.offset}>"

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """All headers in order; repeated names are possible. The record's own list: do not change it.

        Raises:
            CorruptRecordError: the record's signature does not hold, or is missing although required.
        """
        self.prove()
        return self.raw_headers

    @property
    def raw_headers(self) -> list[tuple[str, bytes]]:
        """All headers in order, as whoever wrote the record says; to describe it or to pass it over."""
        if callable(self._headers):
            self._headers = self._headers()
        headers: list[tuple[str, bytes]] = self._headers or []
        return headers

    def signed_at(self, topic: str, partition: int) -> Record:
        """This record, whose proof is of the place where it came in: it was copied from there."""
        self._place = topic, partition
        return self

    @property
    def signed_place(self) -> tuple[str, int]:
        """Topic and partition that the record's proof is about."""
        topic, partition = getattr(self, "_place", (self.topic, self.partition))
        return topic, partition

    @property
    def has_own_frame(self) -> bool:
        """Whether the value has the schema and the frame that this process writes itself."""
        return self.value.startswith(self._decoder.frame)

    @property
    def signed_by(self) -> TrustedKey | None:
        """The key that signed the record; None: nobody did, or signatures are not verified here.

        Raises:
            CorruptRecordError: the record's signature does not hold, or is missing although required.
        """
        self.prove()
        return getattr(self, "_signed_by", None)

    def release(self) -> None:
        """Drop the decoded event; the next access decodes it again."""
        self._envelope = None

    def header(self, name: str) -> bytes | None:
        """The first value of the header with this name; raises as `headers` does."""
        return header_value(self.headers, name)

    @property
    def number(self) -> int | None:
        """Its number in its run (header `noesium_seq`); None: it is no record of a run.

        Raises:
            CorruptRecordError: the header is no number.
        """
        number = self.header(SEQUENCE)
        if number is None:
            return None
        if not (number.isdigit() and len(number) < _MOST_DIGITS):
            reason = EventValidationError(SEQUENCE, "is no number")
            raise CorruptRecordError(self.topic, self.partition, self.offset, reason)
        return int(number)

    @property
    def event_type(self) -> str:
        """The type from the header; decodes the envelope only if there is no header."""
        value = self.header(CE_TYPE)
        return value.decode("utf-8", "replace") if value is not None else self.envelope.event_type

    @property
    def envelope(self) -> EventEnvelope:
        """The event, decoded and validated once.

        Raises:
            CorruptRecordError: it cannot be decoded, is not valid, or speaks in the name of somebody for whom
                the key that signed it may not speak; names the position.
        """
        if self._envelope is None:
            signed_by = self.signed_by
            try:
                event = self._decoder.decode(self.value)
                if signed_by is not None:
                    self._check_speaker(signed_by, event)
            except EventValidationError as error:
                raise CorruptRecordError(self.topic, self.partition, self.offset, error) from error
            self._envelope = event
        return self._envelope

    def _check_speaker(self, signed_by: TrustedKey, event: EventEnvelope) -> None:
        problem = speaker_problem(signed_by, self.signed_place[0], event)
        if problem is not None:
            raise SignatureError("producer", problem)

    def prove(self) -> None:
        """Check the record's proof where signatures are verified, once; `headers` and `envelope` do so.

        Raises:
            CorruptRecordError: the record's signature does not hold, or is missing although required.
        """
        verifier = self._decoder.record_verifier
        if verifier is None or hasattr(self, "_signed_by"):
            return
        topic, partition = self.signed_place
        try:
            self._signed_by = verifier.check(
                topic, partition, self.key, self.raw_headers, self.value, self.timestamp_ms
            )
        except SignatureError as error:
            raise CorruptRecordError(self.topic, self.partition, self.offset, error) from error

    @property
    def newest(self) -> EventEnvelope:
        """The event in the newest major version of its type that this process knows.

        Raises:
            CorruptRecordError: it cannot be decoded, is not valid, or its version has no upcaster.
        """
        event = self.envelope
        try:
            return self._decoder.upcast(event)
        except EventValidationError as error:
            raise CorruptRecordError(self.topic, self.partition, self.offset, error) from error

    @property
    def unchecked(self) -> EventEnvelope:
        """The event as written, even if its type is unknown here and nobody signed the record.

        For tools that only show it.

        Raises:
            CorruptRecordError: it cannot be decoded at all.
        """
        if self._envelope is not None:
            return self._envelope
        try:
            return self._decoder.decode_unchecked(self.value)
        except EventValidationError as error:
            raise CorruptRecordError(self.topic, self.partition, self.offset, error) from error


def is_wanted(record: Record, keep: TypeFilter) -> bool:
    """Whether a filter keeps a record; one that cannot be read is kept: its error is reported."""
    event_type = header_value(record.raw_headers, CE_TYPE)
    if event_type is not None:
        return keep.keeps(event_type)
    try:
        return keep.keeps_name(record.unchecked.event_type)
    except CorruptRecordError:
        return True
