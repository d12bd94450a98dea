"""Questions to people, and their answers (RFC-0003 §12, RFC-1001 §7.3)."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pydantic import Field

from noesium_stream.event.standard.base import StandardEvent
from noesium_stream.event.standard.forms import Identifier, Name, Names, Object, Whole

MAX_MINIMUM: Final = 100
"""Most people whose approval a question may want."""


class ApprovalRequested(StandardEvent, event_type="approval.requested"):
    """A step asks a person and waits; written once, however often the step is executed.

    `fingerprint` identifies the question's content, and an answer names it. `answer_schema` is the JSON
    Schema of the value; null takes any. `approvers` are the names that may answer, `role:NAME` for a role;
    empty means anyone. With `minimum` so many different people have to approve, and whoever asked for the run
    is not one of them; a rejection counts at once. After `deadline_ms` (milliseconds since the epoch) no
    answer is accepted.
    """

    LEFT_OUT: ClassVar[tuple[str, ...]] = ("minimum",)

    run_id: Identifier
    approval_id: Identifier
    node: Name
    question: Any
    fingerprint: Name
    answer_schema: Object | None = None
    approvers: Names = Field(default_factory=list)
    minimum: Whole | None = Field(default=None, ge=1, le=MAX_MINIMUM)
    deadline_ms: Whole | None = None


class ApprovalAnswered(StandardEvent, event_type="approval.answered"):
    """A person's answer to one question; the first valid one counts, or so many as the question wants.

    In the inbox it is a request, in the run's journal the owner's acceptance. A null `value` means that none
    was given.
    """

    run_id: Identifier
    approval_id: Identifier
    fingerprint: Name
    approved: bool
    value: Any = None
    answered_by: Name


class ApprovalExpired(StandardEvent, event_type="approval.expired"):
    """Nobody answered before the deadline; `decision` is the step's default, null if it has none."""

    run_id: Identifier
    approval_id: Identifier
    deadline_ms: Whole
    decision: Any = None
