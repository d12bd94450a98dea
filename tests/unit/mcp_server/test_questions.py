"""Questions as forms of MCP, and what the answers to them say."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import EventValidationError
from noesium_stream.mcp_server.questions import decision, input_requests
from noesium_stream.tool.gate import ANSWER

ABOUT_A_CALL = {"question": {"tool": "send", "arguments": {"to": "ada"}}, "answer_schema": dict(ANSWER)}
ACCEPT = {"action": "accept"}


def form(asked: dict[str, Any]) -> dict[str, Any]:
    params: dict[str, Any] = input_requests({"id": asked})["id"]["params"]
    return params


def test_the_question_about_a_call_shows_it_and_takes_a_plain_yes() -> None:
    params = form(ABOUT_A_CALL)
    assert params["message"] == 'May send be called with {"to": "ada"}?'
    assert "required" not in params["requestedSchema"]
    assert decision(ABOUT_A_CALL, ACCEPT) == (True, None)
    assert decision(ABOUT_A_CALL, {"action": "decline"}) == (False, None)


def test_the_arguments_of_a_call_can_be_edited() -> None:
    said = {"action": "accept", "content": {"value": '{"arguments": {"to": "otto"}}'}}
    assert decision(ABOUT_A_CALL, said) == (True, {"arguments": {"to": "otto"}})


@pytest.mark.parametrize("schema", [{"type": "integer"}, {"type": "array"}, {"const": 7}])
def test_a_value_that_the_question_needs_is_asked_for(schema: dict[str, Any]) -> None:
    asked = {"question": "How many?", "answer_schema": schema}
    assert form(asked)["requestedSchema"]["required"] == ["value"]
    with pytest.raises(EventValidationError, match="have no value"):
        decision(asked, ACCEPT)
