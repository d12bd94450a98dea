"""Projections' versions (RFC-0004 §8.3)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from noesium_stream.event.domain import DomainEvent

_Offset = Annotated[int, Field(ge=0)]


class MigratedTopic(BaseModel):
    """Where a newer version begins in a topic: `offsets` by partition; `topic_id` tells the topic from one
    that is made anew under its name.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    topic_id: str
    offsets: dict[str, _Offset]


class ProjectionMigrated(DomainEvent, event_type="projection.migrated"):
    """A projection's events are folded by `from_version` before these positions, and from there on by
    `to_version`, which takes the older one's state over. For each `to_version` the first such event counts.
    """

    projection: str
    from_version: Annotated[int, Field(ge=1)]
    to_version: Annotated[int, Field(ge=1)]
    topics: dict[str, MigratedTopic]
