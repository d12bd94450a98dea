"""The results of MCP tools as JSON values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from noesium_stream.errors import ToolExecutionError, ToolServerError
from noesium_stream.tool.legs import MAX_REQUESTS, MAX_STATE, InputRequired

_SAID: Final = 4_000
_UNNAMED: Final = "application/octet-stream"


def result_of(result: Mapping[str, Any], *, structured: bool, who: str) -> Any:
    """The value of a `CallToolResult` (its JSON).

    Args:
        result: as the server sent it.
        structured: the tool declares an output schema, which is that of the structured content.
        who: the tool, for messages.

    Returns:
        The structured content, if the tool declares a schema. Else the text of a result that is one text; or
        a list of blocks: `{"type": "text", "text": …}`, `{"type": "image" | "audio", "media_type": …,
        "base64": …}`, `{"type": "resource", "uri": …, "media_type": …, "text" | "base64": …}`; or, with
        structured content, `{"content": [blocks], "structured": value}`.

    Raises:
        ToolExecutionError: the tool says that it failed, or has no structured content where it has to.
    """
    content = result.get("content") or []
    if result.get("isError"):
        raise ToolExecutionError(f"{who} failed: {_text_of(content) or 'it does not say why'}")
    if structured:
        if "structuredContent" not in result:
            raise ToolExecutionError(f"{who} has an output schema, and gave no structured content.")
        return result["structuredContent"]
    blocks = [_block(one) for one in content]
    if "structuredContent" in result:
        return {"content": blocks, "structured": result["structuredContent"]}
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return blocks[0]["text"]
    return blocks


def input_required_of(
    requests: Mapping[str, Any] | None, state: str | None, who: str, *, task_id: str | None = None
) -> InputRequired:
    """What a server asks for, bounded.

    Raises:
        ToolExecutionError: it asks for what is not offered to servers (a model, folders).
        ToolServerError: it asks too much.
    """
    asked = dict(requests or {})
    if len(asked) > MAX_REQUESTS or len(state or "") > MAX_STATE:
        raise ToolServerError(f"{who} asks {len(asked)} questions, or has a state that is too large.")
    for key, request in asked.items():
        method = request.get("method") if isinstance(request, Mapping) else None
        if method != "elicitation/create":
            raise ToolExecutionError(
                f"{who} asks for {str(method)[:100]} ({key[:100]}), which is not offered to servers."
            )
    return InputRequired(asked, state, task_id)


def _text_of(content: Sequence[Any]) -> str:
    texts = [one.get("text", "") for one in content if isinstance(one, Mapping) and one.get("type") == "text"]
    return "\n".join(str(text) for text in texts).strip()[:_SAID]


def _block(block: Any) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, Mapping) else None
    make = _BLOCKS.get(str(kind))
    return {"type": "unknown"} if make is None else {"type": str(kind), **make(block)}


def _text(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"text": block.get("text", "")}


def _binary(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"media_type": block.get("mimeType", _UNNAMED), "base64": block.get("data", "")}


def _resource(block: Mapping[str, Any]) -> dict[str, Any]:
    inner = block.get("resource") or {}
    found = {"uri": str(inner.get("uri", "")), "media_type": inner.get("mimeType", _UNNAMED)}
    return {**found, "base64": inner["blob"]} if "blob" in inner else {**found, "text": inner.get("text", "")}


def _link(block: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "uri": str(block.get("uri", "")),
        "name": block.get("name", ""),
        "media_type": block.get("mimeType", _UNNAMED),
    }


_BLOCKS: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "text": _text,
    "image": _binary,
    "audio": _binary,
    "resource": _resource,
    "resource_link": _link,
}
