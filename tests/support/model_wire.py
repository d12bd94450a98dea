"""How OpenAI's and Ollama's servers write an answer; `answer` is a `model_server.Scripted`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_CREATED = "2026-01-01T00:00:00Z"


def refusal_body(path: str, answer: Any) -> bytes:
    """The body of an error."""
    if path.startswith("/api/"):
        return json.dumps({"error": answer.text}).encode()
    error = {"message": answer.text, "type": "error", "param": None, "code": answer.code}
    return json.dumps({"error": error}).encode()


def _words(text: str) -> list[str]:
    """Its pieces: words, each with the space before it."""
    words = text.split(" ")
    return [word if number == 0 else f" {word}" for number, word in enumerate(words)] if text else []


def _counted(answer: Any, body: dict[str, Any]) -> tuple[int, int]:
    """Tokens of the question and of the answer: their words."""
    asked = sum(len(str(message.get("content") or "").split()) for message in body["messages"])
    return max(1, asked), max(1, len(answer.text.split()) + 5 * len(answer.tool_calls))


def _usage(answer: Any, body: dict[str, Any]) -> Any:
    if answer.usage is not None:
        return answer.usage
    asked, made = _counted(answer, body)
    return {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}


def _openai_calls(answer: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for n, (name, given) in enumerate(answer.tool_calls)
    ]


def _finish(answer: Any) -> str:
    return answer.finish or ("tool_calls" if answer.tool_calls else "stop")


def openai_whole(answer: Any, body: dict[str, Any]) -> dict[str, Any]:
    """A chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.refusal is not None:
        message["refusal"] = answer.refusal
    if answer.tool_calls:
        message["tool_calls"] = _openai_calls(answer)
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": answer.model,
        "system_fingerprint": "fp_test",
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(answer), "logprobs": None}],
        "usage": _usage(answer, body),
    }


def openai_pieces(answer: Any, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunks of a chat completion."""
    head = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": answer.model,
        "system_fingerprint": "fp_test",
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "usage": None}

    yield chunk({"role": "assistant", "content": ""})
    for word in _words(answer.text):
        yield chunk({"content": word})
    if answer.refusal is not None:
        yield chunk({"refusal": answer.refusal})
    for number, call in enumerate(_openai_calls(answer)):
        yield chunk({"tool_calls": [{"index": number, **call}]})
    yield chunk({}, _finish(answer))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(answer, body)}


def _ollama(answer: Any, content: str, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return {"model": answer.model, "created_at": _CREATED, "message": message, "done": False, **more}


def _ollama_end(answer: Any, body: dict[str, Any], content: str) -> dict[str, Any]:
    asked, made = _counted(answer, body)
    usage = {"prompt_eval_count": asked, "eval_count": made} if answer.usage is None else answer.usage
    end = _ollama(answer, content)
    if answer.tool_calls:
        end["message"]["tool_calls"] = [
            {"function": {"name": name, "arguments": given}} for name, given in answer.tool_calls
        ]
    return {**end, "done": True, "done_reason": answer.finish or "stop", "total_duration": 5, **usage}


def ollama_whole(answer: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Ollama's answer."""
    return _ollama_end(answer, body, answer.text)


def ollama_piece(answer: Any, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Ollama's pieces."""
    for word in _words(answer.text):
        yield _ollama(answer, word)
    yield _ollama_end(answer, body, "")
