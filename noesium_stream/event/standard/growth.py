"""Events of an agent type's growth to a next generation of topics."""

from __future__ import annotations

from pydantic import Field

from noesium_stream.event.domain_event import DomainEvent


class PartitionOutgrown(DomainEvent, event_type="partition.outgrown"):
    """There is a next generation: requests to runs that the partition does not know belong there.

    Sent to all partitions of an inbox at once; the owner's copy in its journal counts.
    """

    agent_type: str
    partition: int = Field(ge=0)
    generation: int = Field(ge=2)
    partitions: int = Field(ge=1)


class RequestForwarded(DomainEvent, event_type="request.forwarded"):
    """An inbox record was forwarded to the next generation in the same commit, with the same event id."""

    agent_type: str
    run_id: str
    request_type: str
    request_event_id: str
    generation: int = Field(ge=2)
    partitions: int = Field(ge=1)
