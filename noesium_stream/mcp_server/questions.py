"""Questions of runs as MCP input requests (`elicitation/create`), and their answers.

A form of MCP is a flat object of texts, numbers, yes-or-no values and choices. A question with another
schema is asked as one field `value`; what no field can hold is asked as a text of JSON. That field can be
left out where a plain yes is an answer, as to the question whether a tool may be called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.errors import EventValidationError
from noesium_stream.event.rules.approval_answers import answer_value
from noesium_stream.serving.run_fold import shown_question

VALUE: Final = "value"
"""The field of a form for a value that is no object."""
_TYPES: Final = ("string", "number", "integer", "boolean")
_KEYS: Final = frozenset(
    [
        "type",
        "title",
        "description",
        "default",
        "enum",
        "format",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
    ]
)
_OBJECT_KEYS: Final = frozenset(
    ["type", "title", "description", "properties", "required", "additionalProperties"]
)
_ACTIONS: Final = ("accept", "decline", "cancel")
_TEXT: Final = {"type": "string", "title": "Answer", "description": "A JSON value."}


def input_requests(questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return open questions as input requests, by their ids."""
    return {question_id: _request(asked) for question_id, asked in questions.items()}


def decision(asked: Mapping[str, Any], response: Any) -> tuple[bool, Any] | None:
    """Return what a response decides, and its value; None: nothing, the question stays open.

    Raises:
        EventValidationError: the response has another form than an `ElicitResult`.
    """
    action = response.get("action") if isinstance(response, Mapping) else None
    if action not in _ACTIONS:
        raise EventValidationError("inputResponses", f"have an action that is none of {', '.join(_ACTIONS)}")
    if action == "cancel":
        return None
    if action == "decline":
        return False, None
    content = response.get("content")
    if content is not None and not isinstance(content, Mapping):
        raise EventValidationError("inputResponses", "have a content that is no object")
    return True, _value(asked.get("answer_schema"), dict(content or {}))


def _value(schema: Any, content: dict[str, Any]) -> Any:
    if not schema:
        return content or None
    if _is_form(schema):
        return content
    if VALUE not in content and _takes_plain_yes(schema):
        return None
    if VALUE not in content:
        raise EventValidationError("inputResponses", f"have no {VALUE}")
    value = content[VALUE]
    if _is_field(schema) or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise EventValidationError("inputResponses", f"have a {VALUE} that is no JSON") from None


def _request(asked: Mapping[str, Any]) -> dict[str, Any]:
    params = {
        "mode": "form",
        "message": shown_question(asked["question"]),
        "requestedSchema": _form(asked.get("answer_schema")),
    }
    return {"method": "elicitation/create", "params": params}


def _form(schema: Any) -> dict[str, Any]:
    if not schema:
        return {"type": "object", "properties": {}}
    if _is_form(schema):
        known = {key: schema[key] for key in ("properties", "required") if key in schema}
        return {"type": "object", "properties": {}, **known}
    field = dict(schema) if _is_field(schema) else dict(_TEXT)
    required = {} if _takes_plain_yes(schema) else {"required": [VALUE]}
    return {"type": "object", "properties": {VALUE: field}, **required}


def _takes_plain_yes(schema: Any) -> bool:
    if _is_field(schema):
        return False
    try:
        answer_value(schema, True, None)
    except EventValidationError:
        return False
    return True


def _is_form(schema: Any) -> bool:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return (
        isinstance(properties, Mapping)
        and schema.get("type") == "object"
        and schema.keys() <= _OBJECT_KEYS
        and all(_is_field(field) for field in properties.values())
    )


def _is_field(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or schema.get("type") not in _TYPES or not schema.keys() <= _KEYS:
        return False
    choices = schema.get("enum")
    return choices is None or (schema["type"] == "string" and all(isinstance(one, str) for one in choices))
