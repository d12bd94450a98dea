"""From envelopes to records: everything is checked and encoded before anything is written.

Shared by all backends, so that all refuse the same things with the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

from noesium_stream.errors import EventValidationError, RecordTooLargeError
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.log.encoded import EncodedEvent
from noesium_stream.log.headers import header_text
from noesium_stream.log.port import Cursor, Headers, Only, Outgoing
from noesium_stream.log.topics import TopicKind, Topology, record_key, route

MAX_RECORD_BYTES: Final = 1_000_000
"""Largest key and value together of what is appended."""

MAX_JOURNAL_BYTES: Final = MAX_RECORD_BYTES + 16_384
"""The same for writers, headers included: what an inbox took fits into its owner's journal, where the copy
has more headers. A broker's default limit is 1,048,588."""


class Encoder(Protocol):
    """Turns envelopes into bytes; see `noesium_stream.event.codec.EnvelopeCodec`."""

    def encode(self, envelope: EventEnvelope) -> bytes:
        """Validate and encode; raises `EventValidationError`."""


class Prepared(NamedTuple):
    """A record ready to be written.

    `partition` is -1 where the key decides; `text` is what `header_text` gives (headers that every
    record has), `extra` the ones on top of them.
    """

    topic: str
    partition: int
    key: str
    text: str
    extra: Headers
    value: bytes


# Half the cost of calling the class: this is done once per record.
_prepared: Final = cast(
    Callable[[tuple[str, int, str, str, Headers, bytes]], Prepared], partial(tuple.__new__, Prepared)
)


def prepare_append(
    envelopes: Sequence[EventEnvelope], topic: str | None, topology: Topology, encoder: Encoder
) -> list[Prepared]:
    """Encode what `EventLog.append` was given; partitions are left to the key.

    Raises:
        EventValidationError: an event is not valid, or goes to a journal, which takes a writer.
        RecordTooLargeError: a record is larger than `MAX_RECORD_BYTES`.
        ConfigError: `topic` is none of this namespace's.
    """
    if topic is not None:
        _refuse_journal(topic, topology)
    prepared = []
    encode = encoder.encode
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
        prepared.append(_prepared((target, -1, key, header_text(envelope), (), value)))
    return prepared


def prepare_outgoing(outgoing: Sequence[Outgoing], encoder: Encoder) -> list[Prepared]:
    """Encode what a writer was given, unless it is encoded already.

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
    return prepared


def too_large(envelope: EventEnvelope, size: int) -> RecordTooLargeError:
    """The error for a record of `size` bytes; it names the node that it is of."""
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
    topic: str, count: int, cursor: Cursor, until: Cursor | None, only: Only
) -> Collection[int]:
    """The partitions, in order, that a reader of `topic` with `count` of them has to read.

    Raises:
        EventValidationError: a partition is named that is out of range.
    """
    for partition in {*cursor, *(until or ()), *(only or ())}:
        check_partition(topic, partition, count)
    wanted = range(count) if until is None else sorted(until)
    return wanted if only is None else [partition for partition in wanted if partition in only]


def _refuse_journal(topic: str, topology: Topology) -> None:
    if topology.kind(topic) is TopicKind.JOURNAL:
        raise EventValidationError(
            "topic",
            f"{topic} is a journal, which its owner alone writes",
            hint="Append to the inbox of the agent type, or open the owner's writer.",
        )
