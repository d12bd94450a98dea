"""Questions to people, and their answers (RFC-0003 §12, RFC-1001 §7.3)."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from noesium_stream.event.domain_event import DomainEvent
from noesium_stream.event.standard.forms import Identifier, Name, Names, Object, Whole


class ApprovalRequested(DomainEvent, event_type="approval.requested"):
    """A step asks a person and waits; written once, however often the step is executed.

    `fingerprint` identifies the question's content, and an answer names it. `answer_schema` is the JSON
    Schema of the value; null takes any. `approvers` are the names that may answer; empty means anyone. After
    `deadline_ms` (milliseconds since the epoch) no answer is accepted.
    """

    run_id: Identifier
    approval_id: Identifier
    node: Name
    question: Any
    fingerprint: Name
    answer_schema: Object | None = None
    approvers: Names = Field(default_factory=list)
    deadline_ms: Whole | None = None


class ApprovalAnswered(DomainEvent, event_type="approval.answered"):
    """A person's answer to one question; the first valid one counts.

    In the inbox it is a request, in the run's journal the owner's acceptance. A null `value` means that none
    was given.
    """

    run_id: Identifier
    approval_id: Identifier
    fingerprint: Name
    approved: bool
    value: Any = None
    answered_by: Name


class ApprovalExpired(DomainEvent, event_type="approval.expired"):
    """Nobody answered before the deadline; `decision` is the step's default, null if it has none."""

    run_id: Identifier
    approval_id: Identifier
    deadline_ms: Whole
    decision: Any = None
