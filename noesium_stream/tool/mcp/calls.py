"""Calls of the tools of one MCP server, leg by leg (see `tool/legs.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

import mcp_types as types
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from noesium_stream.errors import (
    NoesiumError,
    OutcomeUnknownError,
    ToolExecutionError,
    ToolServerError,
    ToolTimeoutError,
)
from noesium_stream.event.standard import SideEffectClass
from noesium_stream.tool.context import ToolContext
from noesium_stream.tool.legs import InputRequired, TaskStarted, Unfinished
from noesium_stream.tool.mcp import wire
from noesium_stream.tool.mcp.http import LOST, NOT_SENT
from noesium_stream.tool.mcp.listing import Offered
from noesium_stream.tool.mcp.results import input_required_of, result_of
from noesium_stream.tool.mcp.session import Connection, McpSession

T = TypeVar("T")

_MIN_POLL_S: Final = 0.05
_MAX_POLL_S: Final = 60.0
_MAX_TASK_ID: Final = 4_096
_SAID: Final = 2_000


class McpTool:
    """What serves one tool of a server: `call` is the tool's function, `resume` its further legs."""

    def __init__(self, session: McpSession, offered: Offered) -> None:
        self._session = session
        self._tool = offered.tool
        self._remote = offered.remote
        self._who = f"The tool {offered.tool.name} of the MCP server {session.server.name}"

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Call the tool: its result, or what it leaves unfinished.

        Raises:
            OutcomeUnknownError: the call was sent and not answered, and the tool is external.
            ToolServerError: it was not sent; or not answered, and may be repeated.
            ToolTimeoutError: no answer within the context's limit, and it may be repeated.
            ToolExecutionError: the tool, or the server, says that it failed, or gave what is no result.
        """
        return await self._leg(arguments, context, None, None)

    async def resume(
        self,
        arguments: dict[str, Any],
        context: ToolContext,
        unfinished: Unfinished,
        responses: Mapping[str, Any] | None = None,
    ) -> Any:
        """Go on with a call: send a person's answers, or ask for the state of a task until it ends.

        Raises:
            ToolInputError: `responses` do not answer what was asked.
            NoesiumError: as of `call`.
        """
        if isinstance(unfinished, TaskStarted):
            return await self._poll(unfinished, context)
        if not isinstance(unfinished, InputRequired):
            raise ToolExecutionError(f"{self._who} cannot go on with a call of another tool.")
        unfinished.check(responses or {})
        if unfinished.task_id is None:
            return await self._leg(arguments, context, dict(responses or {}), unfinished.request_state)
        task = TaskStarted(unfinished.task_id)
        update = wire.UpdateTask.model_validate(
            {"params": {"taskId": task.task_id, "inputResponses": dict(responses or {})}}
        )
        await self._made(context, lambda connection: _send(connection, update, types.EmptyResult, context))
        return task

    async def cancel(self, task: TaskStarted) -> None:
        """Ask the server to end a task; it may have ended, or not listen.

        Raises:
            NoesiumError: it was not asked.
        """
        request = wire.CancelTask.model_validate({"params": {"taskId": task.task_id}})
        connection = await self._session.connection(_MAX_POLL_S)
        await connection.client.session.send_request(request, types.EmptyResult, _MAX_POLL_S)

    async def _leg(
        self,
        arguments: dict[str, Any],
        context: ToolContext,
        responses: dict[str, Any] | None,
        state: str | None,
    ) -> Any:
        async def send(connection: Connection) -> wire.CallAnswer:
            return await wire.call(
                connection.client.session,
                self._remote,
                arguments,
                key=context.call_id,
                timeout_s=context.timeout_ms / 1000,
                progress=_progress(context),
                responses=responses,
                state=state,
            )

        answer = await self._made(context, send)
        if isinstance(answer, wire.TaskResult):
            return self._task(answer)
        if isinstance(answer, types.InputRequiredResult):
            sent = wire.as_json(answer)
            return input_required_of(sent.get("inputRequests"), answer.request_state, self._who)
        return self._result(wire.as_json(answer))

    def _result(self, answer: Mapping[str, Any]) -> Any:
        value = result_of(answer, structured=self._tool.output_schema is not None, who=self._who)
        self._tool.check_output(value)
        return value

    def _task(self, answer: wire.TaskResult) -> TaskStarted:
        if not 0 < len(answer.task_id) <= _MAX_TASK_ID:
            raise ToolExecutionError(f"{self._who} answered with a task whose id is not valid.")
        return TaskStarted(answer.task_id, round(_bounded(answer.poll_interval_ms) * 1000))

    async def _poll(self, task: TaskStarted, context: ToolContext) -> Any:
        request = wire.GetTask.model_validate({"params": {"taskId": task.task_id}})
        pause_s = _bounded(task.poll_ms)
        try:
            async with asyncio.timeout(context.timeout_ms / 1000):
                while True:
                    state = await self._made(
                        context,
                        lambda connection: _send(connection, request, wire.TaskState, context),
                        SideEffectClass.IDEMPOTENT,
                    )
                    if state.status != "working":
                        return self._ended(task, state)
                    context.progress(0, None, (state.status_message or "")[:500])
                    pause_s = pause_s if state.poll_interval_ms is None else _bounded(state.poll_interval_ms)
                    await asyncio.sleep(pause_s)
        except TimeoutError:
            raise ToolTimeoutError(
                f"{self._who} had not ended its task within {context.timeout_ms:,} ms."
            ) from None

    def _ended(self, task: TaskStarted, state: wire.TaskState) -> Any:
        if state.status == "completed" and state.result is not None:
            try:
                answer = types.CallToolResult.model_validate(state.result, by_name=False)
            except ValidationError:
                raise ToolExecutionError(f"{self._who} ended its task with what is no result.") from None
            return self._result(wire.as_json(answer))
        if state.status == "input_required":
            return input_required_of(state.input_requests, None, self._who, task_id=task.task_id)
        why = (state.error or {}).get("message") or state.status_message or "it does not say why"
        raise ToolExecutionError(f"{self._who}: its task is {state.status[:50]}: {str(why)[:_SAID]}")

    async def _made(
        self,
        context: ToolContext,
        send: Callable[[Connection], Awaitable[T]],
        side_effects: SideEffectClass | None = None,
    ) -> T:
        """Send a request; once more if the first was refused before anything was done."""
        for last in (False, True):
            connection = await self._session.connection(context.timeout_ms / 1000)
            try:
                answer = await send(connection)
            except MCPError as error:
                if not last and await self._may_repeat(connection, error):
                    continue
                self._raise(error, side_effects or self._tool.side_effect_class)
            except ValidationError as error:
                raise ToolExecutionError(
                    f"{self._who} gave what is no result of the protocol: {error.errors()[0]['msg'][:200]}."
                ) from None
            self._session.backoff.worked()
            return answer
        raise AssertionError("the second attempt returns or raises")

    async def _may_repeat(self, connection: Connection, error: MCPError) -> bool:
        """Whether the server has refused without doing anything, and what was wrong is put right."""
        if error.code == types.HEADER_MISMATCH:
            try:
                await self._session.refresh(connection)
            except (MCPError, ValidationError):
                return False
            return True
        if error.code == types.INVALID_REQUEST and error.message == "Session terminated":
            connection.end()  # the server does not know its session any more, as after its restart
            return True
        return False

    def _raise(self, error: MCPError, side_effects: SideEffectClass) -> NoReturn:
        said = error.message[:_SAID]
        external = side_effects is SideEffectClass.EXTERNAL
        raised: NoesiumError
        if error.code == NOT_SENT:  # nothing was done
            raised = ToolServerError(f"{self._who} was not called: {said}.")
        elif _lost(error):
            what = f"{self._who} was called, and the server did not answer: {said}."
            raised = OutcomeUnknownError(what) if external else ToolServerError(what)
        elif error.code == types.REQUEST_TIMEOUT:
            what = f"{self._who} had not answered within its time limit."
            raised = OutcomeUnknownError(what) if external else ToolTimeoutError(what)
        else:
            raised = ToolExecutionError(f"{self._who} failed: {said or 'it does not say why'} ({error.code})")
        raise raised from None


async def _send(
    connection: Connection, request: types.Request[Any, Any], kind: type[Any], context: ToolContext
) -> Any:
    return await connection.client.session.send_request(request, kind, context.timeout_ms / 1000)


def _lost(error: MCPError) -> bool:
    """Whether nobody knows what became of a request; servers, too, answer with the code of the SDK."""
    if error.code == types.CONNECTION_CLOSED:
        return error.message == "Connection closed" or error.message.startswith("SSE stream")
    return error.code == LOST


def _bounded(poll_ms: float | None) -> float:
    """A pause between two looks at a task, in seconds."""
    return min(_MAX_POLL_S, max(_MIN_POLL_S, (1_000 if poll_ms is None else poll_ms) / 1000))


def _progress(context: ToolContext) -> ProgressFnT:
    async def hear(progress: float, total: float | None, message: str | None) -> None:
        context.progress(progress, total, (message or "")[:500])

    return hear
