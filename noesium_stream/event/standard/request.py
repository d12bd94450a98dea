"""Events of requests that an owner cannot take yet, or hands on to a next generation of topics."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import AgentType, Identifier, Name, Text, Whole

BEHIND: Final = "it waits for the command of its run, which is parked"
"""The reason for deferring later requests to a run whose command is deferred."""


class RequestParked(StandardEvent, event_type="request.parked"):
    """An inbox record is deferred: it stays in the journal until a worker can take it.

    The owner does not know its schema, or carries no version that it asks for.

    Attributes:
        run_id: the record's key, which may be empty.
        request_type: its event type, if known.
        reason: what it waits for.
        topic, partition, offset: its position in the inbox.
        logged_ms: its append time by the log's clock (milliseconds since the epoch).
        headers: its headers, in order; values as Latin-1.
        record_base64: its bytes; of a large one the part `part` of `parts`, all of them in one commit.
    """

    run_id: Name
    request_type: Name | None = None
    reason: Text
    topic: Name
    partition: Whole = Field(ge=0)
    offset: Whole = Field(ge=0)
    logged_ms: Whole
    headers: list[tuple[Text, Text]] = Field(default_factory=list)
    record_base64: Text
    part: Whole = Field(default=0, ge=0)
    parts: Whole = Field(default=1, ge=1)


class RequestResumed(StandardEvent, event_type="request.resumed"):
    """Deferred requests of a run were processed: the results, if any, are in the same commit.

    `offsets` are those of their `request.parked`, in this partition of the journal. `refused`: why one of
    them is now a dead letter.
    """

    run_id: Name
    offsets: list[Whole]
    refused: Text | None = None


class PartitionOutgrown(StandardEvent, event_type="partition.outgrown"):
    """There is a next generation: requests to runs that the partition does not know belong there.

    Sent to all partitions of an inbox at once; the owner's copy in its journal counts.
    """

    agent_type: AgentType
    partition: Whole = Field(ge=0)
    generation: Whole = Field(ge=2)
    partitions: Whole = Field(ge=1)


class RequestForwarded(StandardEvent, event_type="request.forwarded"):
    """An inbox record was forwarded to the next generation in the same commit, with the same event id."""

    agent_type: AgentType
    run_id: Identifier
    request_type: Name
    request_event_id: Name
    generation: Whole = Field(ge=2)
    partitions: Whole = Field(ge=1)
