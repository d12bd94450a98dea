"""From envelopes to records: everything is checked and encoded before anything is written.

All backends share it, so that all refuse the same input with the same messages.

Decision record: the five texts that differ between events are built once, as one text with line ends between
them (`header_text`). Embedded backends store that text as it is; Kafka gets the list. Building a list of six
encoded pairs costs 3 µs, the text 1 µs. No value can hold a line end: the envelope checks ids and types, and
the source is percent-encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import count, repeat
from typing import Final, NamedTuple, Protocol, cast
from urllib.parse import quote

from noesium_stream.clock import to_rfc3339
from noesium_stream.errors import EventValidationError, RecordTooLargeError, SignatureError
from noesium_stream.event.envelope import AgentRef, EventEnvelope
from noesium_stream.event.record_proofs import RecordSigner, RecordVerifier
from noesium_stream.event.trust.speaking import speaker_problem
from noesium_stream.event.trust.trusted_key import TrustedKey
from noesium_stream.log.encoded_event import EncodedEvent
from noesium_stream.log.headers import (
    CE_ID,
    CE_SOURCE,
    CE_SPECVERSION,
    CE_TIME,
    CE_TYPE,
    COMMIT,
    TRACEPARENT,
)
from noesium_stream.log.port import Cursor, Headers, Only, Outgoing
from noesium_stream.log.topics import TopicKind, Topology, record_key, route

MAX_RECORD_BYTES: Final = 1_000_000
"""Largest size of key and value together of an appended record."""

MAX_JOURNAL_BYTES: Final = MAX_RECORD_BYTES + 16_384
"""The same for writers, headers included: a record that an inbox accepted fits into its owner's journal,
where the copy has more headers. A broker's default limit is 1,048,588."""

_DIGITS: Final = tuple(map(str, range(1024)))
"""Decimal texts: formatting a number takes as long as the rest of a commit's header."""

_SPECVERSION: Final = (CE_SPECVERSION, b"1.0")


class Encoder(Protocol):
    """Encodes envelopes to bytes; see `noesium_stream.event.codec.codec.EnvelopeCodec`."""

    record_signer: RecordSigner | None
    record_verifier: RecordVerifier | None

    def encode(self, envelope: EventEnvelope) -> bytes:
        """Validate and encode; raises `EventValidationError`."""


class Prepared(NamedTuple):
    """A record ready to be written.

    `partition` is -1 if the key decides; `text` is the result of `header_text` (the headers of every record),
    `extra` the additional headers.
    """

    topic: str
    partition: int
    key: str
    text: str
    extra: Headers
    value: bytes


# Half the cost of calling the class: this runs once per record.
_prepared: Final = cast(
    Callable[[tuple[str, int, str, str, Headers, bytes]], Prepared], partial(tuple.__new__, Prepared)
)


def prepare_append(
    envelopes: Sequence[EventEnvelope], topic: str | None, topology: Topology, encoder: Encoder
) -> list[Prepared]:
    """Encode the input of `EventLog.append`; the key chooses the partitions.

    Raises:
        EventValidationError: an event is not valid, or its topic is a journal, which only a writer may write.
        SignatureError: this process signs with a key that may not speak for an event's producer.
        RecordTooLargeError: a record is larger than `MAX_RECORD_BYTES`.
        ConfigError: `topic` does not belong to this namespace.
    """
    if topic is not None:
        _refuse_journal(topic, topology)
    prepared = []
    encode = encoder.encode
    own = _own_key(encoder)
    targets: dict[str, str] = {}
    for envelope in envelopes:
        value = encode(envelope)
        key = envelope.partition_key or record_key(envelope)
        if len(value) + len(key) > MAX_RECORD_BYTES:
            raise too_large(envelope, len(value) + len(key))
        target = topic
        if target is None:
            target = targets.get(envelope.event_type)
            if target is None or "to" in envelope.metadata:
                target = route(envelope, topology)
                if "to" not in envelope.metadata:
                    targets[envelope.event_type] = target
        if own is not None:
            _require_own_name(own, target, envelope)
        prepared.append(_prepared((target, -1, key, header_text(envelope), (), value)))
    return prepared


def _own_key(encoder: Encoder) -> TrustedKey | None:
    """The key that this process signs with, if it knows for whom it speaks."""
    signer, verifier = encoder.record_signer, encoder.record_verifier
    return None if signer is None or verifier is None else verifier.key(signer.key_id)


def _require_own_name(own: TrustedKey, topic: str, envelope: EventEnvelope) -> None:
    """Refuse what every reader would refuse: nothing is written in a name that the key does not speak for."""
    problem = own.problem_at(envelope.timestamp_ms)
    if problem is not None:
        raise SignatureError("noesium_proof", problem, hint="Sign with another key.")
    problem = speaker_problem(own, topic, envelope)
    if problem is not None:
        names = ", ".join(sorted(own.speaks_for))
        raise SignatureError(
            "producer", problem, hint=f"It speaks for {names}: act in such a name, or sign with another key."
        )


def prepare_outgoing(outgoing: Sequence[Outgoing], encoder: Encoder) -> list[Prepared]:
    """Encode the input of a writer, and sign it; records that are encoded already stay as they are.

    Raises:
        EventValidationError: an event is not valid.
        RecordTooLargeError: a record is larger than `MAX_JOURNAL_BYTES`.
    """
    prepared = []
    encode = encoder.encode
    for envelope, topic, partition, key, headers in outgoing:
        event: object = envelope
        if type(event) is EncodedEvent:
            _, value, text, _ = event
        else:
            value, text = encode(envelope), header_text(envelope)
        size = len(value) + len(key)
        if headers:
            size += sum([len(name) + len(content) for name, content in headers])
        if size > MAX_JOURNAL_BYTES:
            raise too_large(envelope, size)
        prepared.append(_prepared((topic, partition, key, text, headers, value)))
    return signed(prepared, encoder)


def signed(
    prepared: list[Prepared], encoder: Encoder, partitions: Sequence[int] | None = None
) -> list[Prepared]:
    """The records of one append with their proofs, if this process signs.

    `partitions` are where they go, if the records do not say so themselves.
    """
    signer = encoder.record_signer
    if signer is None:
        return prepared
    proofs = signer.prove(
        [
            (
                topic,
                own if partition is None else partition,
                key,
                [*headers_of_text(text.encode()), *extra],
                value,
            )
            for (topic, own, key, text, extra, value), partition in zip(
                prepared, partitions or repeat(None, len(prepared)), strict=True
            )
        ]
    )
    return [
        record._replace(extra=(*record.extra, proof)) for record, proof in zip(prepared, proofs, strict=True)
    ]


def too_large(envelope: EventEnvelope, size: int) -> RecordTooLargeError:
    """The error for a record of `size` bytes; it names the node that produced the record."""
    node = envelope.payload.get("node")
    which = f"of the node {node}" if isinstance(node, str) else envelope.event_id
    return RecordTooLargeError(
        f"{envelope.event_type} {which} has {size:,} bytes, the log takes {MAX_RECORD_BYTES:,}.",
        hint="Keep large content elsewhere and put its address and hash into the event.",
    )


def check_partition(topic: str, partition: int, partitions: int) -> None:
    """Refuse a partition that the topic does not have.

    Raises:
        EventValidationError: it is out of range.
    """
    if not 0 <= partition < partitions:
        raise EventValidationError(
            "partition", f"{topic} has partitions 0 to {partitions - 1}, not {partition}"
        )


def partitions_to_read(
    topic: str, total: int, cursor: Cursor, until: Cursor | None, only: Only
) -> Collection[int]:
    """The partitions that a reader of `topic` with `total` partitions has to read, in order.

    Raises:
        EventValidationError: a named partition is out of range.
    """
    for partition in {*cursor, *(until or ()), *(only or ())}:
        check_partition(topic, partition, total)
    wanted = range(total) if until is None else sorted(until)
    return wanted if only is None else [partition for partition in wanted if partition in only]


def _refuse_journal(topic: str, topology: Topology) -> None:
    kind = topology.kind(topic)
    if kind is TopicKind.JOURNAL:
        raise EventValidationError(
            "topic",
            f"{topic} is a journal, which its owner alone writes",
            hint="Append to the inbox of the agent type, or open the owner's writer.",
        )
    if kind is TopicKind.TAKEN:
        raise EventValidationError(
            "topic",
            f"{topic} says which tasks are taken, which their takers alone write",
            hint=f"Append to the topic of the tasks, {topology.task(topic.split('.', 2)[2])}.",
        )


def header_text(envelope: EventEnvelope) -> str:
    """The standard headers that differ between events, one per line: type, id, source, time, traceparent."""
    producer, trace, ms = envelope.producer, envelope.trace, envelope.timestamp_ms
    return (
        f"{envelope.event_type}\n{envelope.event_id}\n{_source(producer.agent_type, producer.agent_id)}\n"
        f"{_second(ms // 1000)}{ms % 1000:03d}Z\n00-{trace.trace_id}-{trace.span_id}-01"
    )


def header_middle(producer: AgentRef, ms: int) -> str:
    """The part of `header_text` between id and trace: the same for all events of one producer and moment."""
    source = _source(producer.agent_type, producer.agent_id)
    return f"\n{source}\n{_second(ms // 1000)}{ms % 1000:03d}Z\n00-"


def headers_of_text(text: bytes) -> list[tuple[str, bytes]]:
    """Parse the standard headers from the output of `header_text`."""
    event_type, event_id, source, time, traceparent = text.split(b"\n")
    return [
        _SPECVERSION,
        (CE_ID, event_id),
        (CE_TYPE, event_type),
        (CE_SOURCE, source),
        (CE_TIME, time),
        (TRACEPARENT, traceparent),
    ]


def standard_headers(envelope: EventEnvelope) -> list[tuple[str, bytes]]:
    """The headers of every record, as a new list: CloudEvents' five, and `traceparent`."""
    return headers_of_text(header_text(envelope).encode())


def commit_header(commit_id: str, index: int, total: int) -> tuple[str, bytes]:
    """The header `noesium_commit` of one record."""
    return COMMIT, f"{commit_id}:{index}:{total}".encode()


def commit_headers(
    commit_id: str, places: Sequence[tuple[str, int]], counts: dict[tuple[str, int], int]
) -> list[tuple[str, bytes]]:
    """The `commit_header` of each of several records.

    Args:
        commit_id: the id of their commit.
        places: topic and partition of each record.
        counts: the number of earlier records of the commit in each place; this function increments it.
    """
    ends = {}
    for place, more in Counter(places).items():
        first = counts.get(place, 0)
        counts[place] = first + more
        ends[place] = count(first).__next__, f":{first + more}"
    start, headers = f"{commit_id}:", list[tuple[str, bytes]]()
    for place in places:
        number, end = ends[place]
        index = number()
        digits = _DIGITS[index] if index < len(_DIGITS) else str(index)
        headers.append((COMMIT, f"{start}{digits}{end}".encode()))
    return headers


@lru_cache(maxsize=4096)
def _source(agent_type: str, agent_id: str) -> str:
    """`ce_source`: it has to be a URI reference, and names the agent for good, not the process."""
    return f"/agents/{quote(agent_type, safe='')}/{quote(agent_id, safe='')}"


@lru_cache(maxsize=4096)
def _second(second: int) -> str:
    """A cached second, `2026-03-01T12:00:00.`: formatting it costs more than all the rest."""
    return to_rfc3339(second * 1000)[:-4]
