"""Questions of a run to people in its causal tree: who answered them, and what allowed that."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from noesium_stream.client.views.approvals import one_line
from noesium_stream.event.envelope import EventEnvelope
from noesium_stream.event.rules.approval_answers import is_complete
from noesium_stream.log.headers import ALLOWED
from noesium_stream.log.record import Record

_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Allowed:
    """What allowed an answer, as the run's owner has recorded it; None: it had no say.

    Attributes:
        approver: the entry of the question's `approvers`: a name or `role:NAME`.
        rule: the rule of the policy: `allow N`, or `operator`.
        key: the id of the key that signed the answer.
    """

    approver: str | None = None
    rule: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class GivenAnswer:
    """An answer that the run's owner has accepted."""

    answered_by: str
    approved: bool
    answered_ms: int
    allowed: Allowed | None = None


@dataclass(slots=True)
class AskedQuestion:
    """A question of a step; `status` is open, approved, rejected or expired."""

    approval_id: str
    question: str
    asked_ms: int
    approvers: list[str]
    minimum: int | None = None
    status: str = "open"
    closed_ms: int | None = None
    answers: list[GivenAnswer] = field(default_factory=list)

    def answer(self, event: EventEnvelope, allowed: Allowed | None) -> None:
        """Fold an accepted answer."""
        payload = event.payload
        if self.status != "open":
            return
        by, approved = payload["answered_by"], bool(payload["approved"])
        self.answers.append(GivenAnswer(by, approved, event.timestamp_ms, allowed))
        given = [{"answered_by": one.answered_by, "approved": one.approved} for one in self.answers]
        if is_complete({"minimum": self.minimum}, given):
            self.close("approved" if approved else "rejected", event.timestamp_ms)

    def close(self, status: str, at_ms: int) -> None:
        """Close the question, if it is open."""
        if self.status == "open":
            self.status, self.closed_ms = status, at_ms


def asked_question(event: EventEnvelope) -> AskedQuestion:
    """Make the question of an `approval.requested`."""
    payload = event.payload
    return AskedQuestion(
        payload["approval_id"],
        one_line(payload["question"]),
        event.timestamp_ms,
        list(payload.get("approvers") or ()),
        payload.get("minimum"),
    )


def allowed_by(record: Record) -> Allowed | None:
    """Return what a record says allowed it; None: it says nothing."""
    said = next((value for name, value in record.raw_headers if name == ALLOWED), None)
    try:
        found: Any = None if said is None else orjson.loads(said)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    return Allowed(*(_text(found.get(name)) for name in ("approver", "rule", "key")))


def _text(value: Any) -> str | None:
    return value[:_LONGEST] if isinstance(value, str) else None
