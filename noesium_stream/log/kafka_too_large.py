"""Which record a broker has refused for its size: it says that there is one, and not more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from noesium_stream.errors import RecordTooLargeError
from noesium_stream.log.prepare import Prepared

MOST_BYTES: Final = "max.message.bytes"
"""Of a topic: so many bytes it takes at once, compressed."""

_HINT: Final = (
    "Keep large content elsewhere and put its address and hash into the event, or let the topic take more "
    f"({MOST_BYTES})."
)


def too_large_for(
    records: Sequence[Prepared], limits: Mapping[str, int], error: RecordTooLargeError
) -> RecordTooLargeError:
    """The error for a commit: the record that exceeds its topic's limit by most, or all that are for a topic.

    Args:
        records: of the commit.
        limits: of their topics, where they are known.
        error: what the broker has said; stays where that is all that is known.
    """
    known = [record for record in records if record.topic in limits]
    if not known:
        return error
    record = max(known, key=lambda record: _size(record) / limits[record.topic])
    topic, limit = record.topic, limits[record.topic]
    event_type, event_id = record.text.split("\n")[:2]
    said = f"{event_type} {event_id} has {_size(record):,} bytes"
    if _size(record) <= limit:
        together = [_size(one) for one in records if one.topic == topic]
        said = f"{len(together):,} records have {sum(together):,} bytes together; the largest, {said}"
    return RecordTooLargeError(
        f"{said}; the topic {topic} takes {limit:,} at once ({MOST_BYTES}).", hint=_HINT
    )


def _size(record: Prepared) -> int:
    return len(record.value) + len(record.key)
