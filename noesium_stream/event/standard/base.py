"""Base of the standard events.

Decision record: pydantic builds a validator and a serializer for each class, about a millisecond each. A
command uses a few of the eighty standard classes, so each is built on first use (`defer_build`). Classes of
users are built when they are defined: what is wrong with one is then reported where it was written.
"""

from __future__ import annotations

from pydantic import ConfigDict

from noesium_stream.event.domain_event import DomainEvent


class StandardEvent(DomainEvent):
    """A standard event; see the module's decision record."""

    model_config = ConfigDict(defer_build=True)
