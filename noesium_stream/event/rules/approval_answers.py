"""Validation of an answer to an approval question, shared by the sender and the run's owner.

Both read the question from its `approval.requested`, so no agent code is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jsonschema_rs

from noesium_stream.errors import EventValidationError

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
        EventValidationError: the value violates the schema; the field is its path from `value`.
    """
    if value is None:
        if schema is None or _validator(schema).is_valid(approved):
            return approved
        if not approved:
            return None
    if schema is not None:
        _validate(schema, value)
    return value


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless this is a JSON Schema 2020-12."""
    jsonschema_rs.meta.validate(dict(schema))


def _validate(schema: Mapping[str, Any], value: Any) -> None:
    try:
        _validator(schema).validate(value)
    except jsonschema_rs.ValidationError as error:
        path = ["value", *(str(part) for part in error.instance_path)]
        reason = error.message
        if value is None:
            reason = f"none was given, and the question wants one: {reason}"
        elif isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
            path.append(str(error.kind.property))
            reason = "is missing"
        raise EventValidationError(".".join(path)[:_MAX_MESSAGE], reason[:_MAX_MESSAGE]) from None


def _validator(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(dict(schema))
