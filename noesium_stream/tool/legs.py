"""Calls in several legs: before it has a result, a tool may ask a person, go on as a task of its server, or
have other tools of the agent called.

Each leg is an effect of its own. Leg 0 calls the tool's function; if that returns an `Unfinished`, its record
(`leg_record`) says so. Then a person is asked, or the other tool is called, and the next leg is
`Resumable.resume` with what leg 0 has recorded: so another process, after a crash, goes on where the call
was, and makes no call again. `class_of_leg` says which side effects the next leg has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

from noesium_stream.errors import EventValidationError, ToolExecutionError, ToolInputError
from noesium_stream.event.payload.judge import first_line, judge_of
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.atomic import AtomicTool, ToolSource
from noesium_stream.tool.context import ToolContext

MAX_LEGS: Final = 64
"""Most legs of one call; a server that asks on and on is refused."""
MAX_CALLS: Final = 500
"""Most calls of other tools that one call makes."""
MAX_REQUESTS: Final = 16
MAX_STATE: Final = 262_144
"""Characters of a server's opaque state."""
_RESULT, _INPUT, _TASK, _CALL = "result", "input_required", "task", "call"


@dataclass(frozen=True, slots=True)
class InputRequired:
    """A tool asks people before it goes on.

    Attributes:
        requests: by key, what is asked: `{"method": "elicitation/create", "params": {"mode": "form",
            "message": …, "requestedSchema": …}}`, or `"mode": "url"` with `"url"`.
        request_state: the server's opaque state, sent back byte for byte.
        task_id: the task that asks; None: the call itself.
    """

    requests: Mapping[str, Any] = field(default_factory=dict)
    request_state: str | None = None
    task_id: str | None = None

    def check(self, responses: Mapping[str, Any]) -> None:
        """Check answers: for each request `{"action": "accept", "content": {…}}`, or `decline` or `cancel`.

        Raises:
            ToolInputError: names the first answer that is wrong.
        """
        for strange in sorted(set(responses) ^ set(self.requests)):
            what = "is missing" if strange in self.requests else "answers nothing"
            raise ToolInputError(f"The answer {strange[:200]!r} {what}.")
        for key, response in responses.items():
            _check_response(key, self.requests[key], response)

    def declined(self) -> dict[str, Any]:
        """The answers of a person who declines."""
        return {key: {"action": "decline"} for key in self.requests}


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A tool goes on as a task of its server, which is asked for its state until it ends.

    Attributes:
        task_id: the server's id of the task.
        poll_ms: how often the server wants to be asked, in milliseconds.
    """

    task_id: str
    poll_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class CallRequired:
    """A tool has another tool of its agent called: it is judged, journaled and made as each of its calls.

    The next leg gets `{"calls": [{"call": …, "answer": …}, …]}` as `responses`: all calls so far, in order,
    with answers `{"value": …}` or `{"error": text, "error_class": …}`.

    Attributes:
        name: the tool, or its name with `_` in place of what no Python name has.
        positional, named: its arguments, JSON values; positional ones in the order of its schema.
        memory: what the tool gets back with the answer.
    """

    name: str
    positional: Sequence[Any] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """All of it as a JSON value."""
        return {
            "name": self.name,
            "positional": list(self.positional),
            "named": dict(self.named),
            "memory": dict(self.memory),
        }


Unfinished = InputRequired | TaskStarted | CallRequired


@runtime_checkable
class Resumable(Protocol):
    """What serves a tool whose calls may have several legs; the tool's function is its method `call`."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Leg 0: the result, or an `Unfinished`."""

    async def resume(
        self,
        arguments: dict[str, Any],
        context: ToolContext,
        unfinished: Unfinished,
        responses: Mapping[str, Any] | None = None,
    ) -> Any:
        """A further leg: the result, or an `Unfinished`.

        Raises:
            ToolInputError: `responses` do not answer what was asked.
        """


def resumable(tool: AtomicTool) -> Resumable | None:
    """What serves a tool, if its calls may have several legs."""
    served_by = getattr(tool.function, "__self__", None)
    return served_by if isinstance(served_by, Resumable) else None


def has_legs(tool: AtomicTool) -> bool:
    """Whether the results of a tool's calls are recorded as legs; one that nothing serves here counts, too.

    A replay asks no server for its tools, and has to read what calls of them have recorded.
    """
    return resumable(tool) is not None or (tool.function is None and tool.source is ToolSource.MCP)


def class_of_leg(tool: AtomicTool, unfinished: Unfinished | None) -> SideEffectClass:
    """The side effects of the leg behind `unfinished` (None: of leg 0): to look at a task changes nothing."""
    return SideEffectClass.IDEMPOTENT if isinstance(unfinished, TaskStarted) else tool.side_effect_class


def leg_record(value: Any) -> dict[str, Any]:
    """What a leg has returned, as a JSON value; a result cannot pass for an `Unfinished`."""
    if isinstance(value, InputRequired):
        return {
            _INPUT: {
                "requests": dict(value.requests),
                "request_state": value.request_state,
                "task_id": value.task_id,
            }
        }
    if isinstance(value, CallRequired):
        return {_CALL: value.as_json()}
    if isinstance(value, TaskStarted):
        return {_TASK: {"task_id": value.task_id, "poll_ms": value.poll_ms}}
    return {_RESULT: value}


def leg_of(record: Mapping[str, Any]) -> tuple[Any, Unfinished | None]:
    """The result of a recorded leg, or what it has left unfinished.

    Raises:
        ToolExecutionError: this is no record of a leg.
    """
    try:
        if _INPUT in record:
            return None, InputRequired(**record[_INPUT])
        if _TASK in record:
            return None, TaskStarted(**record[_TASK])
        if _CALL in record:
            return None, CallRequired(**record[_CALL])
        return record[_RESULT], None
    except (KeyError, TypeError) as error:
        raise ToolExecutionError(f"The record of a call's leg is not valid: {error}.") from None


def _check_response(key: str, request: Any, response: Any) -> None:
    action = response.get("action") if isinstance(response, Mapping) else None
    if action not in ("accept", "decline", "cancel"):
        raise ToolInputError(f"The answer {key[:200]!r} has no action accept, decline or cancel.")
    params = request.get("params", {}) if isinstance(request, Mapping) else {}
    if action != "accept" or params.get("mode", "form") != "form":
        return
    try:
        judge_of(params.get("requestedSchema") or {}).check(response.get("content"), f"answer {key[:200]}")
    except EventValidationError as error:
        raise ToolInputError(f"{error.field} {error.reason}.") from None
    except ValueError as error:
        raise ToolInputError(f"The answer {key[:200]!r} cannot be judged: {first_line(error)}") from None
