"""The catalogue of all standard events."""

from __future__ import annotations

from noesium_stream.event import standard
from noesium_stream.event.catalogue import Catalogue
from noesium_stream.event.domain_event import DomainEvent


def standard_events() -> tuple[type[DomainEvent], ...]:
    """Every event class of `noesium_stream.event.standard`, by type."""
    classes = [value for value in vars(standard).values() if isinstance(value, type)]
    events = [value for value in classes if issubclass(value, DomainEvent)]
    return tuple(sorted(events, key=lambda event: (event.event_type(), event.event_version())))


def standard_catalogue() -> Catalogue:
    """A new catalogue with all standard events; register your own in it."""
    catalogue = Catalogue()
    for event_class in standard_events():
        catalogue.register(event_class, lazily=True)
    return catalogue
