"""The further legs of a call: people's answers, calls of other tools, and tasks (see `legs.py`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from noesium_stream.errors import ToolExecutionError, ToolInputError
from noesium_stream.kernel.step.position import Place
from noesium_stream.kernel.step.waits import Waits
from noesium_stream.tool.call_state import ToolCall
from noesium_stream.tool.legs import MAX_CALLS, MAX_LEGS, CallRequired, InputRequired, Unfinished, leg_of

_RESPONSE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"action": {"enum": ["accept", "decline", "cancel"]}, "content": {}},
    "required": ["action"],
}

NextLeg = Callable[[int, Unfinished, Mapping[str, Any] | None], Awaitable[dict[str, Any]]]
"""Makes the leg of this number; returns its record."""


CallTool = Callable[[int, CallRequired], Awaitable[dict[str, Any]]]
"""Makes the call of this number of another tool; returns its answer."""


async def finish(
    place: Place, call: ToolCall, record: Mapping[str, Any], next_leg: NextLeg, call_tool: CallTool
) -> Any:
    """The result of a call whose leg 0 has this record.

    Raises:
        ToolExecutionError: it has too many legs.
        Exception: as of the legs.
    """
    calls: list[dict[str, Any]] = []
    number = 0
    while number - len(calls) < MAX_LEGS and len(calls) < MAX_CALLS:
        result, unfinished = leg_of(record)
        if unfinished is None:
            return result
        number += 1
        responses: Mapping[str, Any] | None = None
        if isinstance(unfinished, InputRequired):
            responses = await _responses(place, call, unfinished)
        elif isinstance(unfinished, CallRequired):
            answer = await call_tool(number, unfinished)
            calls.append({"call": unfinished.as_json(), "answer": answer})
            responses = {"calls": calls}
        record = await next_leg(number, unfinished, responses)
    raise ToolExecutionError(f"The tool {call.tool.name} has gone on {number} times, and has no result.")


async def _responses(place: Place, call: ToolCall, asked: InputRequired) -> dict[str, Any]:
    """A person's answers; asked again, with what was wrong, until they answer what was asked."""
    problem: str | None = None
    schema = {
        "type": "object",
        "properties": dict.fromkeys(asked.requests, _RESPONSE),
        "required": list(asked.requests),
        "additionalProperties": False,
    }
    for _ in range(MAX_LEGS):
        question: dict[str, Any] = {"tool": call.tool.name, "asks": dict(asked.requests)}
        if problem is not None:
            question["problem"] = problem
        answer = await Waits(place).ask(question, schema=schema)
        if not answer.approved or not isinstance(answer.value, Mapping):
            return asked.declined()
        try:
            asked.check(answer.value)
        except ToolInputError as error:
            problem = error.message
            continue
        return dict(answer.value)
    return asked.declined()
