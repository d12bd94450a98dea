"""Calls of agents of other systems, for `step.invoke("a2a:URL#SKILL", arguments)`.

A call is one message, whose id is the effect's idempotency key: a peer that tells messages by their ids does
not do it twice. The task is then polled until it ends. A message that the peer may have taken, without an
answer to tell, has an unknown outcome, and so has a task that cannot be found any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import httpx
from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, ClientFactory
from a2a.client.errors import AgentCardResolutionError
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseError

from noesium_stream.a2a.hosts import check_allowed, parse_target
from noesium_stream.a2a.http import SETTINGS_ERRORS, ResponseTooLargeError, http_client
from noesium_stream.a2a.parts import fits_data, part_of, to_struct, value_of
from noesium_stream.a2a.tasks import TERMINAL
from noesium_stream.config import load_config
from noesium_stream.errors import CapabilityError, EventValidationError, OutcomeUnknownError, brief
from noesium_stream.redaction import redacted

FIRST_LOOK_S: Final = 0.1
LAST_LOOK_S: Final = 5.0
"""Pauses between two looks at a task: they grow from the first to the last."""
MOST_FAILED_LOOKS: Final = 120
"""Looks in a row that may fail, ten minutes' worth, before nobody knows what became of the task."""
_MOST_TEXT: Final = 1_000
_ASKS: Final = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


async def call(
    target: str, arguments: dict[str, Any], *, version: str | None = None, idempotency_key: str
) -> Any:
    """Call an agent of another system and return its result: the one value that it has, else its artifacts.

    Args:
        target: `a2a:https://HOST/PATH#SKILL`; the agent card is below PATH.
        arguments: the input: one part of data.
        version: of the skill, for servers that know versions; see the guide.
        idempotency_key: the id of the message.

    Raises:
        ConfigError: the target has another form, or the settings do not allow its host.
        CapabilityError: the peer cannot be reached, refused the message, failed, or asks for more.
        OutcomeUnknownError: the peer may have taken the message, and what became of it is not known.
    """
    place = parse_target(target)
    config = await asyncio.to_thread(load_config)
    check_allowed(place.url, config.a2a_allow)
    if not fits_data(arguments):
        raise CapabilityError(f"The arguments of {target} are too deep, or a number is beyond 2^53.")
    said = {"skill": place.skill, "version": version}
    message = Message(
        message_id=idempotency_key,
        role=Role.ROLE_USER,
        parts=[part_of(arguments)],
        metadata=to_struct({name: value for name, value in said.items() if value is not None}),
    )
    async with await http_client(config) as http:
        peer = _Peer(target, await _client(target, place.url, http))
        answer = await peer.send(message)
        if answer.HasField("message"):
            return result_of([list(answer.message.parts)])
        return peer.outcome(await peer.end_of(answer.task))


def result_of(artifacts: Sequence[Sequence[Part]]) -> Any:
    """Return the one value of these artifacts, given by their parts; else all of them, as JSON."""
    values = [[_value(part) for part in parts] for parts in artifacts]
    if len(values) == 1 and len(values[0]) == 1:
        return values[0][0]
    return {"artifacts": values} if values else None


def _value(part: Part) -> Any:
    if part.WhichOneof("content") in ("text", "data"):
        try:
            return value_of(part)
        except EventValidationError as error:
            raise CapabilityError(f"A result cannot be taken: {error.field} {error.reason}.") from None
    return MessageToDict(part)


class _Peer:
    """One call of one peer."""

    def __init__(self, target: str, client: Client) -> None:
        self._target = target
        self._client = client

    async def send(self, message: Message) -> StreamResponse:
        request = SendMessageRequest(message=message)
        request.configuration.return_immediately = True
        try:
            async for response in self._client.send_message(request):
                return response
        except SETTINGS_ERRORS:
            raise
        except A2AClientError as error:
            if _was_refused(error):
                raise CapabilityError(f"{self._target} cannot be called: {_said(error)}") from error
            raise OutcomeUnknownError(f"{self._target} has not answered: {_said(error)}") from error
        except A2AError as error:
            raise CapabilityError(f"{self._target} refused the call: {_said(error)}") from error
        except (ResponseTooLargeError, httpx.HTTPError, ParseError, ValueError) as error:
            raise OutcomeUnknownError(f"{self._target} answered what is no task: {_said(error)}") from error
        raise OutcomeUnknownError(f"{self._target} has not answered.")

    async def end_of(self, task: Task) -> Task:
        """Poll a task until it ends, or asks for something."""
        pause_s, failed = FIRST_LOOK_S, 0
        while task.status.state not in TERMINAL and task.status.state not in _ASKS:
            await asyncio.sleep(pause_s)
            pause_s = min(LAST_LOOK_S, pause_s * 1.5)
            try:
                task = await self._client.get_task(GetTaskRequest(id=task.id))
                failed = 0
            except SETTINGS_ERRORS:
                raise
            except A2AClientError as error:
                failed += 1
                if failed > MOST_FAILED_LOOKS:
                    raise OutcomeUnknownError(
                        f"{self._target} says nothing of its task {task.id[:100]}: {_said(error)}"
                    ) from error
            except (A2AError, ResponseTooLargeError, ParseError, ValueError) as error:
                raise OutcomeUnknownError(
                    f"{self._target} says nothing of its task {task.id[:100]}: {_said(error)}"
                ) from error
        if task.status.state in _ASKS:
            await self._leave(task)
        return task

    async def _leave(self, task: Task) -> None:
        """Cancel a task that waits for what a call does not give; it does no more than wait."""
        try:
            await self._client.cancel_task(CancelTaskRequest(id=task.id))
        except (A2AError, A2AClientError, ResponseTooLargeError) as error:
            raise CapabilityError(
                f"{self._target} asks: {_text(task)}. Its task {task.id[:100]} is left open: {_said(error)}"
            ) from error

    def outcome(self, task: Task) -> Any:
        """Return the result of a task that has ended.

        Raises:
            CapabilityError: it has none.
        """
        state = task.status.state
        if state == TaskState.TASK_STATE_COMPLETED:
            return result_of([list(artifact.parts) for artifact in task.artifacts])
        name = TaskState.Name(state).removeprefix("TASK_STATE_").lower().replace("_", " ")
        raise CapabilityError(f"{self._target}: {name}: {_text(task)}")


async def _client(target: str, url: str, http: httpx.AsyncClient) -> Client:
    try:
        card = await A2ACardResolver(http, url).get_agent_card()
        return ClientFactory(ClientConfig(streaming=False, httpx_client=http)).create(card)
    except (AgentCardResolutionError, ResponseTooLargeError, httpx.HTTPError, ValueError) as error:
        raise CapabilityError(f"{target} has no agent card: {_said(error)}") from error


def _was_refused(error: A2AClientError) -> bool:
    """Whether the peer has not taken a message: it was never sent, or its HTTP server refused it."""
    cause = error.__cause__
    if isinstance(cause, httpx.HTTPStatusError):
        return cause.response.status_code < 500
    return isinstance(cause, _NOT_SENT)


def _text(task: Task) -> str:
    texts = [part.text for part in task.status.message.parts if part.text]
    return redacted(" ".join(texts))[:_MOST_TEXT] or "it does not say why"


def _said(error: Exception) -> str:
    return redacted(brief(error, _MOST_TEXT)).rstrip(".") + "."
