"""Requests that the SDK's `Client` does not send by itself: calls in legs, and tasks (SEP-2663)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NoReturn

import mcp_types as types
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import ProgressFnT
from pydantic import Discriminator, Tag, TypeAdapter

KEY_META: Final = "io.noesium/idempotencyKey"
"""In `_meta` of a call: the same text whenever this very call is repeated."""
TASKS: Final = "io.modelcontextprotocol/tasks"


class TaskResult(types.Result):
    """A call's answer: it goes on as a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str = "working"
    poll_interval_ms: float | None = None


class TaskState(types.Result):
    """The state of a task, with its result, error or questions where it has them."""

    task_id: str | None = None
    status: str
    status_message: str | None = None
    poll_interval_ms: float | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None


class _TaskParams(types.RequestParams):
    task_id: str


class _UpdateParams(_TaskParams):
    input_responses: dict[str, Any]


class GetTask(types.Request[_TaskParams, Literal["tasks/get"]]):
    """Asks for a task's state."""

    method: Literal["tasks/get"] = "tasks/get"
    params: _TaskParams
    name_param = "taskId"


class UpdateTask(types.Request[_UpdateParams, Literal["tasks/update"]]):
    """Answers a task's questions."""

    method: Literal["tasks/update"] = "tasks/update"
    params: _UpdateParams
    name_param = "taskId"


class CancelTask(types.Request[_TaskParams, Literal["tasks/cancel"]]):
    """Asks that a task end."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: _TaskParams
    name_param = "taskId"


class TasksExtension(ClientExtension):
    """Says to servers that they may answer with tasks."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """See `ClientExtension.claims`."""
        return (ResultClaim(result_type="task", model=TaskResult, resolve=_resolve),)


def _kind(value: Any) -> str:
    tag = value.get("resultType") if isinstance(value, dict) else getattr(value, "result_type", None)
    return "task" if tag == "task" else "core"


CallAnswer = types.CallToolResult | types.InputRequiredResult | TaskResult
_ANSWER: Final[TypeAdapter[CallAnswer]] = TypeAdapter(
    Annotated[
        Annotated[types.CallToolResult | types.InputRequiredResult, Tag("core")]
        | Annotated[TaskResult, Tag("task")],
        Discriminator(_kind),
    ]
)


async def call(
    session: ClientSession,
    name: str,
    arguments: dict[str, Any],
    *,
    key: str | None,
    timeout_s: float,
    progress: ProgressFnT | None = None,
    responses: Mapping[str, Any] | None = None,
    state: str | None = None,
) -> CallAnswer:
    """Send `tools/call`, and return what comes: a result, questions, or a task.

    The SDK's own `call_tool` judges results by `jsonschema`, whose patterns may take for ever; here the
    caller does it, within bounds.

    Raises: what `ClientSession.send_request` raises.
    """
    meta: Any = None if key is None else {KEY_META: key}
    params = types.CallToolRequestParams.model_validate(
        {"name": name, "arguments": arguments, "_meta": meta}
        | ({} if responses is None else {"inputResponses": dict(responses)})
        | ({} if state is None else {"requestState": state})
    )
    return await session.send_request(
        types.CallToolRequest(params=params),
        _ANSWER,
        request_read_timeout_seconds=timeout_s,
        progress_callback=progress,
    )


def as_json(result: types.Result) -> dict[str, Any]:
    """A result as it came over the wire."""
    return result.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def _resolve(result: TaskResult, context: ClaimContext) -> NoReturn:
    raise NotImplementedError("calls are made by `wire.call`, which returns tasks")
