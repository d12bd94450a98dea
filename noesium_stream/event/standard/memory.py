"""Memory (RFC-0004 §5, RFC-1001 §9): what an agent, a person or a program wants to be remembered.

Each event is about one key of one scope; without `scope` that of its producer, `agent:ID`. Which facts are
live follows from the set of these events alone, in whatever order they are read (`memory/fact.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from noesium_stream.event.domain_event import Form
from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Object, Text, Whole

Scope = Annotated[
    str, Form(maxLength=256, pattern="^(shared|(run|session|agent|user|tenant):[^\\u0000-\\u001f]{1,200})$")
]
"""Who remembers it: `shared`, or `run:`, `session:`, `agent:`, `user:`, `tenant:` and an id."""
Ids = Annotated[list[Identifier], Form(maxItems=1_000)]
Subjects = Annotated[list[Annotated[str, Form(maxLength=256)]], Form(maxItems=7)]
Sources = Annotated[list[Annotated[str, Form(minLength=1, maxLength=1_024)]], Form(maxItems=100)]


class MemoryWritten(StandardEvent, event_type="memory.written"):
    """Durable memory changed: the event is the memory, everything else is derived (RFC-0004).

    `memory_id` names the fact; without it the event's id does. With `replaces` it takes the place of these
    facts alone, and stands beside any other; without, of all that were written before it, by the time of the
    events. `sources` are what it comes from, each a text of a program's choice: `web:https://…`,
    `tool:CALL`, or `memory:ID` for another fact. `said_by` is who said it. `valid_from_ms` to
    `valid_until_ms` is when it held, in the world; from `expires_ms` on it is not shown any more.
    `stands_for` are facts that a summary replaces, and gives back when it is taken back. `about` are the
    users beside the scope's own whom it is about: what their facts say is in it, and it is erased with them.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = (
        "memory_id",
        "scope",
        "replaces",
        "stands_for",
        "sources",
        "said_by",
        "valid_from_ms",
        "valid_until_ms",
        "expires_ms",
        "about",
    )
    PERSONAL: ClassVar[tuple[str, ...]] = (
        "key",
        "value_type",
        "replaces",
        "stands_for",
        "sources",
        "said_by",
    )

    key: Name
    value: Any = None
    value_type: Name
    metadata: Object = Field(default_factory=dict)
    memory_id: Identifier | None = None
    scope: Scope | None = None
    replaces: Ids | None = None
    stands_for: Ids | None = None
    sources: Sources | None = None
    said_by: Name | None = None
    valid_from_ms: Whole | None = None
    valid_until_ms: Whole | None = None
    expires_ms: Whole | None = None
    about: Subjects | None = None


class MemoryDeleted(StandardEvent, event_type="memory.deleted"):
    """A key is forgotten: the facts that `replaces` names, or all that were written before."""

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("memory_id", "scope", "replaces", "reason")
    PERSONAL: ClassVar[tuple[str, ...]] = ("key", "replaces")

    key: Name
    memory_id: Identifier | None = None
    scope: Scope | None = None
    replaces: Ids | None = None
    reason: Text | None = None


class MemoryRetracted(StandardEvent, event_type="memory.retracted"):
    """A source is not believed: memory is as if nothing that comes from it had been written.

    `memory:ID` names a fact. With `restored` it is believed again. Of several about one source the latest
    counts.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("reason", "restored")
    PERSONAL: ClassVar[tuple[str, ...]] = ("source",)

    source: Annotated[str, Form(minLength=1, maxLength=1_024)]
    reason: Text | None = None
    restored: bool | None = None
