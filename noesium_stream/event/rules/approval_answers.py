"""Validation of an answer to an approval question, shared by the sender and the run's owner.

Both read the question from its `approval.requested`, so no agent code is needed. The schema in it is data of
the log: it loads nothing, and one that would take too long to judge by is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs

from noesium_stream.errors import EventValidationError
from noesium_stream.event.payload.schema_cost import schema_cost
from noesium_stream.event.payload.validator import PATTERNS, validator

_MAX_MESSAGE: Final = 1_000


def refusal_of(question: Mapping[str, Any], answer: Mapping[str, Any]) -> EventValidationError | None:
    """The reason to refuse an answer, or None.

    Args:
        question: payload of `approval.requested`.
        answer: payload of `approval.answered`.
    """
    if answer["fingerprint"] != question["fingerprint"]:
        return EventValidationError("fingerprint", "is that of another question")
    approvers = question.get("approvers") or []
    if approvers and answer["answered_by"] not in approvers:
        allowed = ", ".join(approvers)
        return EventValidationError("answered_by", f"{answer['answered_by']} is not among {allowed}")
    try:
        answer_value(question.get("answer_schema"), answer["approved"], answer.get("value"))
    except EventValidationError as error:
        return error
    return None


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
        if judge.is_valid(approved):
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
    schema_cost(schema)
    validator(schema, PATTERNS)


def _judge(schema: Mapping[str, Any], value: Any) -> jsonschema_rs.Draft202012Validator:
    try:
        schema_cost(schema).check(value)
        return validator(schema, PATTERNS)
    except ValueError as error:
        raise EventValidationError(
            "answer_schema", f"the question's schema cannot be used: {_first_line(error)}"
        ) from None


def _first_line(error: ValueError) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:_MAX_MESSAGE]


def _validate(judge: jsonschema_rs.Draft202012Validator, value: Any) -> None:
    try:
        judge.validate(value)
    except jsonschema_rs.ValidationError as error:
        path = ["value", *(str(part) for part in error.instance_path)]
        reason = error.message
        if value is None:
            reason = f"none was given, and the question wants one: {reason}"
        elif isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
            path.append(str(error.kind.property))
            reason = "is missing"
        raise EventValidationError(".".join(path)[:_MAX_MESSAGE], reason[:_MAX_MESSAGE]) from None
