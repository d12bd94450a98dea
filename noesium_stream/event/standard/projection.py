"""Events of projection versions (RFC-0004 §8.3)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Name, Whole

_Offset = Annotated[Whole, Field(ge=0)]


class MigratedTopic(BaseModel, defer_build=True):
    """Start of a newer version in a topic: `offsets` by partition.

    `topic_id` identifies the topic, as opposed to one that was recreated under its name.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    topic_id: Name
    offsets: dict[Name, _Offset]


class ProjectionMigrated(StandardEvent, event_type="projection.migrated"):
    """A newer version of a projection takes over the state of an older one at these positions.

    `from_version` folds the events before them, `to_version` the others. For each `to_version` the first such
    event counts.
    """

    projection: Name
    from_version: Annotated[Whole, Field(ge=1)]
    to_version: Annotated[Whole, Field(ge=1)]
    topics: dict[Name, MigratedTopic]
