"""Validation of an answer to an approval question, shared by the sender and the run's owner.

Both read the question from its `approval.requested`, so no agent code is needed. The schema in it is data of
the log: it loads nothing, and one that would take too long to judge by is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from noesium_stream.errors import EventValidationError
from noesium_stream.event.payload.canonical import canonical_json
from noesium_stream.event.payload.judge import Judge, first_line, judge_of
from noesium_stream.event.trust.trusted_key import ROLE


def refusal_of(
    question: Mapping[str, Any],
    answer: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]] = (),
    *,
    roles: Collection[str] | None = None,
    requested_by: str | None = None,
) -> EventValidationError | None:
    """The reason to refuse an answer, or None.

    Args:
        question: payload of `approval.requested`.
        answer: payload of `approval.answered`.
        earlier: payloads of the answers that were accepted.
        roles: of whoever answers, without `role:`; None: they are not known here, and the owner judges them.
        requested_by: who asked for the run; None: it is not known here.
    """
    name, schema = answer["answered_by"], question.get("answer_schema")
    if answer["fingerprint"] != question["fingerprint"]:
        return EventValidationError("fingerprint", "is that of another question")
    if approver_of(question, name, roles) is None:
        return EventValidationError("answered_by", f"{name} is not among {', '.join(question['approvers'])}")
    if question.get("minimum") is not None and name == requested_by:
        return EventValidationError(
            "answered_by", f"{name} asked for the run, and somebody else has to answer"
        )
    try:
        value = answer_value(schema, answer["approved"], answer.get("value"))
    except EventValidationError as error:
        return error
    first = next((one for one in earlier if one["approved"]), None)
    if first is None or not answer["approved"]:
        return None
    if canonical_json(value) != canonical_json(answer_value(schema, True, first.get("value"))):
        return EventValidationError("value", f"is not what {first['answered_by']} has approved")
    return None


def approver_of(question: Mapping[str, Any], name: str, roles: Collection[str] | None) -> str | None:
    """The entry of `approvers` by which somebody may answer: a name, `role:NAME`, or "" for anyone.

    None: no entry does. Where the roles are not known (None), any role that is named may be theirs.
    """
    approvers: Sequence[str] = question.get("approvers") or ()
    if not approvers or name in approvers:
        return name if approvers else ""
    of_roles = (entry for entry in approvers if entry.startswith(ROLE))
    return next((entry for entry in of_roles if roles is None or entry.removeprefix(ROLE) in roles), None)


def is_complete(question: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these accepted answers answer a question: a rejection, or approvals by enough people."""
    if any(not answer["approved"] for answer in answers):
        return True
    return len({answer["answered_by"] for answer in answers}) >= (question.get("minimum") or 1)


def answer_value(schema: Mapping[str, Any] | None, approved: bool, value: Any) -> Any:
    """The value of an answer, validated by the question's schema.

    An answer without a value counts as true (approval) or false (rejection) if the schema allows a boolean,
    or if there is no schema. A rejection may also have no value: None.

    Raises:
        EventValidationError: the value violates the schema; the field is its path from `value`. Or the schema
            itself cannot be used (see `check_schema`): the field is `answer_schema`.
    """
    if schema is None:
        return approved if value is None else value
    judge = _judge(schema, value)
    if value is None:
        if judge.validator.is_valid(approved):
            return approved
        if not approved:
            return None
    _validate(judge, value)
    return value


def check_schema(schema: Mapping[str, Any]) -> None:
    """Check a question's schema.

    Raises:
        ValueError: it is no JSON Schema 2020-12, too large or too deep, or refers to what it does not hold.
    """
    judge_of(schema)


def _judge(schema: Mapping[str, Any], value: Any) -> Judge:
    try:
        judge = judge_of(schema)
        judge.cost.check(value)
    except ValueError as error:
        raise EventValidationError(
            "answer_schema", f"the question's schema cannot be used: {first_line(error)}"
        ) from None
    return judge


def _validate(judge: Judge, value: Any) -> None:
    try:
        judge.check(value, "value")
    except EventValidationError as error:
        if value is not None:
            raise
        reason = f"none was given, and the question wants one: {error.reason}"
        raise EventValidationError(error.field, reason) from None
