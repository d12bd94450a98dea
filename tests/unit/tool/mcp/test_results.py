"""Results of MCP tools as JSON values."""

from __future__ import annotations

from typing import Any

import pytest

from noesium_stream.errors import NoesiumError, ToolExecutionError
from noesium_stream.tool.mcp.results import input_required_of, result_of

TEXT = {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    ("result", "structured", "value"),
    [
        ({"content": [TEXT]}, False, "a"),
        ({"content": []}, False, []),
        ({"content": [TEXT, TEXT]}, False, [TEXT, TEXT]),
        ({"content": [TEXT], "structuredContent": {"b": 1}}, True, {"b": 1}),
        ({"content": [], "structuredContent": None}, True, None),
        ({"content": [TEXT], "structuredContent": 1}, False, {"content": [TEXT], "structured": 1}),
        ({"content": [{"type": "new"}, 7]}, False, [{"type": "unknown"}, {"type": "unknown"}]),
        (
            {"content": [{"type": "audio", "data": "AA", "mimeType": "audio/wav"}]},
            False,
            [{"type": "audio", "media_type": "audio/wav", "base64": "AA"}],
        ),
        (
            {
                "content": [
                    {"type": "resource", "resource": {"uri": "a:b", "text": "t", "mimeType": "text/x"}}
                ]
            },
            False,
            [{"type": "resource", "uri": "a:b", "media_type": "text/x", "text": "t"}],
        ),
    ],
)
def test_a_result_has_a_json_value(result: dict[str, Any], structured: bool, value: Any) -> None:
    assert result_of(result, structured=structured, who="it") == value


@pytest.mark.parametrize(
    ("result", "structured", "said"),
    [
        ({"content": [{"type": "text", "text": "x" * 10_000}], "isError": True}, False, "it failed: xxx"),
        ({"content": [], "isError": True}, True, "does not say why"),
        ({"content": [TEXT]}, True, "no structured content"),
    ],
)
def test_what_is_no_result_is_an_error_of_bounded_size(
    result: dict[str, Any], structured: bool, said: str
) -> None:
    with pytest.raises(ToolExecutionError, match=said) as caught:
        result_of(result, structured=structured, who="it")
    assert len(str(caught.value)) < 5_000


@pytest.mark.parametrize(
    ("requests", "state"),
    [
        ({"a": {"method": "roots/list"}}, None),
        ({"a": 7}, None),
        ({str(number): {"method": "elicitation/create"} for number in range(99)}, None),
        ({}, "x" * 1_000_000),
    ],
)
def test_a_server_cannot_ask_for_everything(requests: dict[str, Any], state: str | None) -> None:
    with pytest.raises(NoesiumError):
        input_required_of(requests, state, "it")
