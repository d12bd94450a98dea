"""Events of durable memory and of system failures (RFC-0004, RFC-0002, RFC-1001 §14.2)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from noesium_stream.event.domain_event import DomainEvent


class MemoryWritten(DomainEvent, event_type="memory.written"):
    """Durable memory changed: the event is the memory, everything else is derived (RFC-0004)."""

    key: str
    value: Any = None
    value_type: str
    metadata: dict[str, Any] = Field(default_factory=dict)


class ErrorOccurred(DomainEvent, event_type="system.error.occurred"):
    """A failure that no other event describes."""

    error_type: str
    message: str
    original_event_id: str | None = None
    stack_trace: str | None = None


class EventValidationFailed(DomainEvent, event_type="system.event.validation_failed"):
    """A record was refused (RFC-0002 §14): its position, the reason and what was found.

    `record_base64` has its bytes; for a large record only the start, and `whole` is False. `topic_id` is the
    topic's id: a topic that is recreated under the same name has the same positions again.
    """

    original_event_id: str | None = None
    failure_reason: str
    validation_trace: list[str] = Field(default_factory=list)
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    topic_id: str | None = None
    record_base64: str | None = None
    whole: bool = True


class DeadLetterRedriven(DomainEvent, event_type="system.dead_letter.redriven"):
    """A refused record was sent again to its original topic; in one commit with it, and once.

    `topic`, `partition`, `offset` and `topic_id` are those of the refused record.
    """

    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)
    topic_id: str | None = None
    redriven_by: str


class DeadLetterDropped(DomainEvent, event_type="system.dead_letter.dropped"):
    """A person decided to drop a refused record; it stays where it was."""

    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)
    topic_id: str | None = None
    dropped_by: str
    reason: str | None = None
