"""What a tool of LangChain has returned, as the JSON value that is recorded, and back.

Text, or blocks of content, represent the `ToolMessage` that has nothing besides. Anything else is an object
with the one key `returned` and the value in the recorded form of the state, or `interrupt` and the question
of a tool that was interrupted. So the log reads well, and a person may say `paid` where a result is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from langchain_core.messages import ToolMessage
from langgraph.types import Interrupt

from noesium_stream.kernel.state.node_values import record, restore
from noesium_stream.kernel.state.typed_json import decode, encode
from noesium_stream.kernel.step.answer import AnswerType

_RETURNED: Final = "returned"
_INTERRUPT: Final = "interrupt"


def record_of(returned: Any, name: str, call_id: str | None) -> Any:
    """The record of what a tool has returned.

    Args:
        returned: a `ToolMessage`, a `Command`, a list of them, or any value.
        name: the tool's name.
        call_id: the id that the model gave to the call.

    Raises:
        StateError: a part of it cannot be recorded.
    """
    if isinstance(returned, ToolMessage) and returned == _message(returned.content, name, call_id):
        return returned.content
    return {_RETURNED: record(returned)}


def returned_of(recorded: Any, name: str, call_id: str | None) -> Any:
    """What a tool has returned, from its record.

    Raises:
        StateError: it has a value of a class that is not declared here.
    """
    if isinstance(recorded, Mapping) and recorded.keys() == {_RETURNED}:
        return restore(recorded[_RETURNED])
    if isinstance(recorded, str) or _are_blocks(recorded):
        return _message(recorded, name, call_id)
    return _message(orjson.dumps(recorded).decode(), name, call_id)  # a person's word


def interrupt_record(interrupt: Interrupt) -> dict[str, Any]:
    """The record of a call that asks a question by LangGraph's `interrupt()`.

    Raises:
        StateError: the question, or the schema of its answer, cannot be recorded.
    """
    schema = AnswerType(interrupt.response_schema).json_schema
    return {_INTERRUPT: {"value": encode(interrupt.value, "question"), "schema": schema}}


def interrupt_of(recorded: Any) -> tuple[Any, Any] | None:
    """The question in a record, and the JSON Schema of its answer; None: it is no question."""
    if not isinstance(recorded, Mapping) or recorded.keys() != {_INTERRUPT}:
        return None
    asked = recorded[_INTERRUPT]
    return decode(asked["value"]), asked["schema"]


def _message(content: Any, name: str, call_id: str | None) -> ToolMessage:
    return ToolMessage(content, name=name, tool_call_id=call_id)


def _are_blocks(recorded: Any) -> bool:
    return isinstance(recorded, list) and all(isinstance(block, str | dict) for block in recorded)
