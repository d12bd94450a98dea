"""Requests that an owner cannot take as yet."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from noesium_stream.event.domain import DomainEvent

BEHIND: Final = "it waits for the command of its run, which is parked"
"""The reason of what is sent to such a run."""


class RequestParked(DomainEvent, event_type="request.parked"):
    """A record of an inbox waits, here, for a worker that can take it: this owner does not know its schema,
    or carries no version that it asks for.

    Attributes:
        run_id: the record's key.
        request_type: its event type, as far as that can be told.
        reason: what it waits for.
        topic, partition, offset: where it came in.
        logged_ms: when, by the log's clock (milliseconds since the epoch).
        headers: its headers, in order; values as Latin-1.
        record_base64: its bytes; of a large one the part `part` of `parts`, all of them in one commit.
    """

    run_id: str
    request_type: str | None = None
    reason: str
    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)
    logged_ms: int
    headers: list[tuple[str, str]] = Field(default_factory=list)
    record_base64: str
    part: int = Field(default=0, ge=0)
    parts: int = Field(default=1, ge=1)


class RequestResumed(DomainEvent, event_type="request.resumed"):
    """Parked requests of a run are dealt with: what became of them is in the same commit, and where there is
    nothing they change nothing any more.

    `offsets` are those of their `request.parked`, in this partition of the journal. `refused`: why one
    of them is a dead letter now.
    """

    run_id: str
    offsets: list[int]
    refused: str | None = None
