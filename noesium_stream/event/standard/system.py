"""Events of system failures (RFC-0002, RFC-1001 §14.2)."""

from __future__ import annotations

from pydantic import Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Name, Text, Texts, Whole


class ErrorOccurred(StandardEvent, event_type="system.error.occurred"):
    """A failure that no other event describes."""

    error_type: Name
    message: Text
    original_event_id: Name | None = None
    stack_trace: Text | None = None


class EventValidationFailed(StandardEvent, event_type="system.event.validation_failed"):
    """A record was refused (RFC-0002 §14): its position, the reason and what was found.

    `record_base64` has its bytes; for a large record only the start, and `whole` is False. `topic_id` is the
    topic's id: a topic that is recreated under the same name has the same positions again.
    """

    original_event_id: Name | None = None
    failure_reason: Text
    validation_trace: Texts = Field(default_factory=list)
    topic: Name | None = None
    partition: Whole | None = None
    offset: Whole | None = None
    topic_id: Name | None = None
    record_base64: Text | None = None
    whole: bool = True


class DeadLetterRedriven(StandardEvent, event_type="system.dead_letter.redriven"):
    """A refused record was sent again to its original topic; in one commit with it, and once.

    `topic`, `partition`, `offset` and `topic_id` are those of the refused record.
    """

    topic: Name
    partition: Whole = Field(ge=0)
    offset: Whole = Field(ge=0)
    topic_id: Name | None = None
    redriven_by: Name


class DeadLetterDropped(StandardEvent, event_type="system.dead_letter.dropped"):
    """A person decided to drop a refused record; it stays where it was."""

    topic: Name
    partition: Whole = Field(ge=0)
    offset: Whole = Field(ge=0)
    topic_id: Name | None = None
    dropped_by: Name
    reason: Text | None = None
