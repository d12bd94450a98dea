"""The manifest of a state file, with a checksum: whose state it is, and how far it was folded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity that a file must have to be used."""

    projection: str
    version: int
    shape: str
    topic: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a state file.

    Attributes:
        cursor: the next offset to fold.
        events: the total number of folded events.
        last_event_id: the event id of the last record that was read; None before the first.
        last_offset: the offset of that record.
        last_ms: append time of that record, in milliseconds.
        commits: the number of commits.
        stamp: the stamp of the last commit; it increases with every commit.
        held: the number of dead letters in the file.
        blocked: the number of held-back keys.
        first: the log's first offset when the state was created; earlier events are not in it.
        migration: the event by which this version took over the state of the previous one; None: it folded
            from the first event.
    """

    identity: Identity
    cursor: int = 0
    events: int = 0
    last_event_id: str | None = None
    last_offset: int | None = None
    last_ms: int = 0
    commits: int = 0
    stamp: int = 0
    held: int = 0
    blocked: int = 0
    first: int = 0
    migration: str | None = None
    format: int = FORMAT


DIFFERENCES: Final = {
    "projection": "it is of the projection {0.projection}",
    "version": "it is of version {0.version}",
    "shape": "its states are of another type ({0.shape})",
    "topic": "it is of the topic {0.topic}",
    "topic_id": "the topic was deleted and made anew (its id was {0.topic_id})",
    "partition": "it is of partition {0.partition}",
}
"""Error texts for a file of another identity."""
