"""LangChain's message as a record: every part of it is what a provider said, so it is bounded and typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from noesium_stream.errors import ModelAnswerError
from noesium_stream.llm.answer import MAX_TOOL_CALLS
from noesium_stream.llm.pricing import reported_price

_SHORT: Final = 200
_KNOWN: Final = ("model_name", "model", "model_version", "system_fingerprint")
_FINISH: Final = ("finish_reason", "done_reason", "stop_reason")


def record_of(message: Any) -> dict[str, Any]:
    """The parts of a message that are recorded, with `claimed`, the tokens that the provider says.

    Raises:
        ModelAnswerError: it asks for more tools than a step calls.
    """
    metadata = getattr(message, "response_metadata", None) or {}
    found: dict[str, Any] = {
        "text": str(message.text),
        "claimed": _claimed(getattr(message, "usage_metadata", None)),
        "answered_by": {name: metadata[name][:_SHORT] for name in _KNOWN if _is_text(metadata.get(name))},
    }
    finish = _finish(metadata)
    if finish is not None:
        found["finish"] = finish
    calls = _tool_calls(message)
    if calls:
        found["tool_calls"] = calls
    refusal = (getattr(message, "additional_kwargs", None) or {}).get("refusal")
    if finish == "content_filter" and not _is_text(refusal):
        refusal = found["text"] or "the provider's filter"
    if _is_text(refusal):
        found["refusal"] = refusal
    said = metadata.get("token_usage")
    if isinstance(said, Mapping):
        found["reported_cost"] = reported_price(said.get("cost"))
    return found


def is_broken_off(message: Any) -> bool:
    """Whether nobody said why the answer ends."""
    return _finish(getattr(message, "response_metadata", None) or {}) is None


def _finish(metadata: Mapping[str, Any]) -> str | None:
    return next((metadata[name][:_SHORT] for name in _FINISH if _is_text(metadata.get(name))), None)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _claimed(usage: Any) -> dict[str, Any] | None:
    if not isinstance(usage, Mapping):
        return None
    details = usage.get("input_token_details")
    cached = details.get("cache_read") if isinstance(details, Mapping) else None
    return {
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "cached_tokens": cached,
    }


def _tool_calls(message: Any) -> list[dict[str, Any]]:
    """The tools that are asked for; a call whose arguments are no JSON object has its text as `invalid`."""
    calls = list(getattr(message, "tool_calls", None) or [])
    invalid = list(getattr(message, "invalid_tool_calls", None) or [])
    if len(calls) + len(invalid) > MAX_TOOL_CALLS:
        raise ModelAnswerError(f"The model asks for {len(calls) + len(invalid):,} calls of tools at once.")
    found = [
        {
            "id": str(call.get("id") or f"call_{number}")[:_SHORT],
            "name": str(call.get("name"))[:_SHORT],
            "arguments": dict(call["args"]) if isinstance(call.get("args"), Mapping) else {},
        }
        for number, call in enumerate(calls)
    ]
    for number, call in enumerate(invalid, len(calls)):
        found.append(
            {
                "id": str(call.get("id") or f"call_{number}")[:_SHORT],
                "name": str(call.get("name"))[:_SHORT],
                "arguments": {},
                "invalid": str(call.get("args"))[:10_000],
            }
        )
    return found
