"""Find the record that the broker rejected for its size: the broker does not name it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from noesium_stream.errors import RecordTooLargeError
from noesium_stream.log.prepare import Prepared

MOST_BYTES: Final = "max.message.bytes"
"""Name of the topic setting for the largest batch, in bytes, after compression."""

_HINT: Final = (
    "Keep large content elsewhere and put its address and hash into the event, or let the topic take more "
    f"({MOST_BYTES})."
)


def too_large_for(
    records: Sequence[Prepared], limits: Mapping[str, int], error: RecordTooLargeError
) -> RecordTooLargeError:
    """The error for a commit: names the record that exceeds its topic's limit by most, or the records of one
    partition that exceed it together.

    Args:
        records: the records of the commit.
        limits: the limits of their topics, as far as they are known.
        error: the broker's error; returned unchanged if no record is found.
    """
    known = [record for record in records if limits.get(record.topic, 0) > 0]
    by_place: dict[tuple[str, int], list[Prepared]] = {}
    for record in known:
        by_place.setdefault((record.topic, record.partition), []).append(record)
    candidates = [[record] for record in known if _size(record) > limits[record.topic]]
    candidates = candidates or [found for found in by_place.values() if len(found) > 1]
    if not candidates:
        return error
    found = max(candidates, key=lambda found: sum(map(_size, found)) / limits[found[0].topic])
    size, topic, limit = sum(map(_size, found)), found[0].topic, limits[found[0].topic]
    if size <= limit:
        return error
    event_type, event_id = max(found, key=_size).text.split("\n")[:2]
    said = f"{event_type} {event_id} has {size:,} bytes"
    if len(found) > 1:
        said = f"{len(found):,} records have {size:,} bytes together; the largest is {event_type} {event_id}"
    return RecordTooLargeError(
        f"{said}; the topic {topic} takes {limit:,} at once ({MOST_BYTES}).", hint=_HINT
    )


def _size(record: Prepared) -> int:
    extra = sum(len(name) + len(value or b"") for name, value in record.extra)
    return len(record.value) + len(record.key) + len(record.text) + extra
