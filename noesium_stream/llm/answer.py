"""A model's answer, as its effect records it, and what is made of it."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import BaseMessage, convert_to_openai_messages
from pydantic import TypeAdapter, ValidationError

from noesium_stream.errors import ConfigError, EventValidationError, ModelAnswerError, StateError
from noesium_stream.event.payload.judge import first_line, judge_of
from noesium_stream.event.payload.value import to_json
from noesium_stream.llm.usage import Usage

MAX_TOOL_CALLS: Final = 128
_FENCE: Final = re.compile(r"^\s*```[a-zA-Z]*\n(.*)\n```\s*$", re.S)
_ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


@dataclass(frozen=True, slots=True)
class AskedTool:
    """A call of a tool that a model asks for; the arguments are not checked.

    Attributes:
        id: the model's id of the call, for the message that answers it.
        name: the tool, as it was offered.
        arguments: by name.
    """

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model answered.

    Attributes:
        text: the answer's text.
        model: `provider:name`, the one that was asked.
        tool_calls: the tools that it asks to be called.
        usage: the tokens.
        cost_nano_usd: what it cost, in nano-dollars; None: the price is not known.
        repeats: the call whose answer was given again, from a cache; None: the model was called.
        finish: why the answer ends, in the provider's words; None: it did not say.
        refusal: what it said instead of an answer; None: it answered.
        answered_by: the model and version that the provider reports.
        message: the answer as a message, for the conversation's next call.
    """

    text: str
    model: str
    tool_calls: tuple[AskedTool, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(0, 0, None, True))
    cost_nano_usd: int | None = None
    finish: str | None = None
    refusal: str | None = None
    answered_by: Mapping[str, str] = field(default_factory=dict)
    repeats: str | None = None

    @property
    def message(self) -> dict[str, Any]:
        """See the class."""
        found: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            found["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for call in self.tool_calls
            ]
        return found


def answer_of(recorded: Mapping[str, Any], model: str, usage: Usage) -> ModelAnswer:
    """The answer in an effect's result."""
    return ModelAnswer(
        text=str(recorded.get("text") or ""),
        model=model,
        tool_calls=tuple(
            AskedTool(str(call["id"]), str(call["name"]), dict(call["arguments"]))
            for call in recorded.get("tool_calls") or ()
        ),
        usage=usage,
        cost_nano_usd=recorded.get("cost_nano_usd"),
        finish=recorded.get("finish"),
        refusal=recorded.get("refusal"),
        answered_by=recorded.get("answered_by") or {},
        repeats=recorded.get("repeats"),
    )


def messages_of(prompt: Any) -> str | list[dict[str, Any]]:
    """A prompt as it is recorded: a text, or messages as OpenAI has them.

    Raises:
        StateError: it is none.
    """
    if isinstance(prompt, str):
        return prompt
    if not isinstance(prompt, Sequence) or not prompt:
        raise StateError("A prompt is a text, or a list of messages that is not empty.")
    made = [_message(one) for one in prompt]
    found: list[dict[str, Any]] = to_json(made, "messages")
    return found


def _message(given: Any) -> dict[str, Any]:
    if isinstance(given, BaseMessage):
        made: Any = convert_to_openai_messages(given)
        return dict(made)
    if isinstance(given, Mapping) and given.get("role") in _ROLES:
        return dict(given)
    raise StateError(
        f"A message is {type(given).__name__} without a known role.",
        hint="Give {'role': 'user', 'content': '…'} (system, user, assistant, tool) or LangChain's messages.",
    )


def tools_of(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools as OpenAI has them: from functions, pydantic models, LangChain's tools, or as they are.

    Raises:
        ConfigError: one of them is no tool.
    """
    calling = importlib.import_module("langchain_core.utils.function_calling")  # it takes half a second
    try:
        return [dict(calling.convert_to_openai_tool(tool)) for tool in tools]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"A model cannot be given a tool: {error}") from error


def with_instruction(prompt: Any, schema: Mapping[str, Any] | None) -> Any:
    """A prompt that asks for JSON of a schema, for a model that cannot be held to it."""
    said = f"Answer with JSON alone, without any other text. The JSON has this schema: {json.dumps(schema)}"
    if isinstance(prompt, str):
        return f"{prompt}\n\n{said}"
    return [*prompt, {"role": "user", "content": said}]


def schema_of(schema: Any) -> dict[str, Any]:
    """The JSON Schema of a pydantic model, of a type, or as it is."""
    if isinstance(schema, Mapping):
        return dict(schema)
    return TypeAdapter(schema).json_schema()


def parsed(text: str, schema: Any) -> Any:
    """The value in a model's text, as `schema` has it.

    Raises:
        ModelAnswerError: it is no JSON, or not of the schema; the message names the first problem.
    """
    fenced = _FENCE.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as error:
        raise ModelAnswerError(f"The answer is no JSON: {str(error)[:200]}") from None
    if isinstance(schema, Mapping):
        try:
            judge_of(schema).check(value, "answer")
        except EventValidationError as error:
            raise ModelAnswerError(f"The answer is not of the schema: {error.message[:400]}") from None
        except ValueError as error:
            raise ModelAnswerError(f"The answer cannot be judged: {first_line(error)}") from None
        return value
    try:
        return TypeAdapter(schema).validate_json(json.dumps(value))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the answer"
        raise ModelAnswerError(f"The answer is not of the schema: {place}: {first['msg'][:300]}") from None
