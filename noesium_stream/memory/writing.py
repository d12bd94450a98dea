"""The events of memory, made from what a caller says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from noesium_stream.clock import to_ms
from noesium_stream.errors import AgentMemoryError
from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.payload.value import to_json
from noesium_stream.event.standard import MemoryDeleted, MemoryRetracted, MemoryWritten
from noesium_stream.memory.fact import FACT
from noesium_stream.memory.item import MemoryItem

MAX_KEY: Final = 1_000
"""Characters of a key."""
MAX_SOURCES: Final = 100
MAX_ABOUT: Final = 7
USER: Final = "user:"

Source = str | MemoryItem | EventEnvelope
"""What a fact comes from: a text of one's own choice, an item of memory, or an event."""


class Ids(Protocol):
    """Where new ids come from."""

    def __call__(self) -> str:
        """A new id."""


def source_text(source: Source) -> str:
    """A source as memory keeps it.

    Raises:
        AgentMemoryError: it is empty, or has more than 1,024 characters.
    """
    if isinstance(source, MemoryItem):
        return FACT + source.id
    text = f"event:{source.event_id}" if isinstance(source, EventEnvelope) else source
    if not 0 < len(text) <= 1_024:
        raise AgentMemoryError(
            f"A source of memory has {len(text)} characters.", hint="Give a text of 1 to 1,024 characters."
        )
    return text


def written(
    new_id: Ids,
    scope: str,
    key: str,
    value: Any,
    metadata: Mapping[str, Any] | None,
    sources: Iterable[Source],
    *,
    replaces: Iterable[str | MemoryItem] | None = None,
    stands_for: Iterable[str | MemoryItem] = (),
    said_by: str | None = None,
    valid_from: datetime | None = None,
    valid_until: datetime | None = None,
    expires: datetime | None = None,
) -> MemoryWritten:
    """The event of `DurableMemory.write`."""
    given = list(sources)
    texts = list(dict.fromkeys(map(source_text, given)))
    if len(texts) > MAX_SOURCES:
        raise AgentMemoryError(
            f"{key[:60]!r} comes from {len(texts)} sources.", hint=f"Name at most {MAX_SOURCES}."
        )
    others = _about(scope, (*given, *(replaces or ()), *stands_for))
    return MemoryWritten(
        key=checked_key(key),
        value=to_json(value, f"memory {key[:60]!r}"),
        value_type=type(value).__name__,
        metadata=to_json(dict(metadata or {}), "metadata"),
        memory_id=new_id(),
        scope=scope,
        replaces=None if replaces is None else _ids(replaces),
        stands_for=_ids(stands_for) or None,
        sources=texts or None,
        said_by=said_by,
        valid_from_ms=_ms(valid_from),
        valid_until_ms=_ms(valid_until),
        expires_ms=_ms(expires),
        about=others or None,
    )


def deleted(new_id: Ids, scope: str, key: str, reason: str | None) -> MemoryDeleted:
    """The event of `DurableMemory.delete`."""
    return MemoryDeleted(key=checked_key(key), memory_id=new_id(), scope=scope, reason=reason)


def retracted(source: Source, reason: str | None, *, restored: bool) -> DomainEvent:
    """The event of `DurableMemory.retract` and `restore`."""
    return MemoryRetracted(source=source_text(source), reason=reason, restored=restored or None)


def _about(scope: str, origins: Iterable[Source]) -> list[str]:
    """The users whose facts a new one comes from, beside that of its own scope: it is erased with them.

    Raises:
        AgentMemoryError: they are more than seven.
    """
    items = [one for one in origins if isinstance(one, MemoryItem)]
    users = {user for item in items for user in (item.scope, *item.about) if user.startswith(USER)}
    found = sorted(users - {scope})
    if len(found) > MAX_ABOUT:
        raise AgentMemoryError(
            f"A fact comes from the memory of {len(found)} users.", hint=f"Write one of at most {MAX_ABOUT}."
        )
    return found


def _ids(facts: Iterable[str | MemoryItem]) -> list[str]:
    return list(dict.fromkeys(one.id if isinstance(one, MemoryItem) else one for one in facts))


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)


def checked_key(key: str) -> str:
    """A key of memory.

    Raises:
        AgentMemoryError: it is empty, or has more than 1,000 characters.
    """
    if not 0 < len(key) <= MAX_KEY:
        raise AgentMemoryError(
            f"A key of memory has {len(key)} characters.", hint=f"Give a text of 1 to {MAX_KEY:,} characters."
        )
    return key
