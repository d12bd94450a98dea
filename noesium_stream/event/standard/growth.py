"""Events of an agent type's growth to a next generation of topics."""

from __future__ import annotations

from pydantic import Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import AgentType, Identifier, Name, Whole


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
