"""The SDK's request handler on the log: no state of a task is kept here (see the package's record)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any, Final

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler, validate_request_params
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size

from noesium_stream.a2a.journals import Seen, Tasks, pauses
from noesium_stream.a2a.listing import page_of
from noesium_stream.a2a.messages import Messages
from noesium_stream.a2a.pieces import PieceEvents, merged, pieces_of, split_cursor
from noesium_stream.a2a.tasks import Change, TaskFold
from noesium_stream.client import Run
from noesium_stream.errors import (
    CapabilityError,
    ConfigError,
    EventStoreError,
    EventValidationError,
    InputDiffersError,
    NoesiumError,
    RecordTooLargeError,
    RunEndedError,
    RunError,
    RunNotFoundError,
    StateError,
    brief,
)

CANCEL_S: Final = 10.0
"""How long a request to cancel waits for the end of the run, in seconds."""
MOST_STREAMS: Final = 256
"""Requests that follow a task at once."""

_LOGGER: Final = logging.getLogger(__name__)
_PAGE: Final = 50
_CURSOR_HEADER: Final = "last-event-id"
_MOST_MESSAGE: Final = 1_000


class LogRequestHandler(RequestHandler):
    """Answers A2A requests from the log.

    Args:
        tasks: the tasks on the log.
        messages: takes messages.
        wait_s: how long a request waits for the end of a task, in seconds; then it returns the task as it is.
    """

    def __init__(self, tasks: Tasks, messages: Messages, wait_s: float) -> None:
        self._tasks = tasks
        self._messages = messages
        self._wait_s = wait_s
        self._streams = 0

    @validate_request_params
    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        """See `RequestHandler`: begin a task or answer its question; wait for what follows, if asked to."""
        with _translated():
            validate_history_length(params.configuration)
            run, fold, key = await self._messages.take(params, _requester(context))
            if not params.configuration.return_immediately:
                await self._until(run, fold, key, self._wait_s)
            return apply_history_length(fold.task(), params.configuration)

    @validate_request_params
    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Seen, None]:
        """See `RequestHandler`: as `on_message_send`, each change as it comes."""
        with _translated():
            validate_history_length(params.configuration)
            run, fold, key = await self._messages.take(params, _requester(context))
            events = PieceEvents(fold)
            yield events.mark(apply_history_length(fold.task(), params.configuration))
            if _stops(fold, key):
                return
            async with aclosing(self._stream(run, fold, key, events, None)) as stream:
                async for event in stream:
                    yield event

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Seen, None]:
        """See `RequestHandler`: from now on, or with `Last-Event-ID` from behind that event on."""
        with _translated():
            requester, after, piece = _requester(context), _header(context, _CURSOR_HEADER), None
            missed: list[Change] = []
            if after is not None:
                cursor, piece = split_cursor(after)
                run, fold, task, missed = await self._tasks.since(params.id, requester, cursor)
            else:
                run, fold = await self._tasks.find(params.id, requester)
                task = fold.task()
                if fold.ended:
                    raise UnsupportedOperationError(
                        f"The task has ended; events that were missed are given to {_CURSOR_HEADER}."
                    )
            events = PieceEvents(fold, piece)
            yield events.mark(task)
            async with aclosing(self._stream(run, fold, None, events, piece, missed)) as stream:
                async for event in stream:
                    yield event

    @validate_request_params
    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        """See `RequestHandler`."""
        with _translated():
            validate_history_length(params)
            _, fold = await self._tasks.find(params.id, _requester(context))
            return apply_history_length(fold.task(), params)

    @validate_request_params
    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """See `RequestHandler`: the requester's tasks, the last changed first."""
        with _translated():
            validate_history_length(params)
            size = params.page_size if params.HasField("page_size") else _PAGE
            validate_page_size(size)
            requester = _requester(context)
            page = page_of(await self._tasks.all(requester), params, size)
            tasks = []
            for fold in page.tasks:
                if params.include_artifacts and fold.has_result:
                    _, fold = await self._tasks.find(fold.task_id, requester)
                task = fold.task()
                if not params.include_artifacts:
                    task.ClearField("artifacts")
                tasks.append(apply_history_length(task, params))
            return ListTasksResponse(
                tasks=tasks, next_page_token=page.next_token, page_size=len(tasks), total_size=page.total
            )

    @validate_request_params
    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        """See `RequestHandler`: the run and all that it has called end, if they have not yet."""
        with _translated():
            requester = _requester(context)
            run, fold = await self._tasks.find(params.id, requester)
            if fold.ended:
                raise TaskNotCancelableError("The task has ended.")
            if await run.cancel_request() is None:
                await run.cancel(f"cancelled over A2A by {requester}")
            await self._until_ended(run, fold)
            return fold.task()

    # -- what is not on offer ------------------------------------------------------------------------

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """See `RequestHandler`."""
        raise PushNotificationNotSupportedError

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """See `RequestHandler`."""
        raise PushNotificationNotSupportedError

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        """See `RequestHandler`."""
        raise PushNotificationNotSupportedError

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        """See `RequestHandler`."""
        raise PushNotificationNotSupportedError

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        """See `RequestHandler`."""
        raise UnsupportedOperationError("There is one card, which is public.")

    # -- waits ---------------------------------------------------------------------------------------

    async def _until(self, run: Run, fold: TaskFold, key: str | None, timeout_s: float) -> None:
        """Fold what comes until the task has ended, or waits for its requester again."""
        if _stops(fold, key):
            return
        async with aclosing(self._changes(run, fold, key)) as changes:
            await self._drained(changes, timeout_s)

    async def _until_ended(self, run: Run, fold: TaskFold) -> None:
        async with aclosing(self._tasks.follow(run, fold)) as changes:
            await self._drained(changes, CANCEL_S)

    async def _drained(self, changes: AsyncGenerator[Any, None], timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                async for _ in changes:
                    pass

    async def _stream(
        self,
        run: Run,
        fold: TaskFold,
        key: str | None,
        events: PieceEvents,
        piece: str | None,
        missed: Sequence[Change] = (),
    ) -> AsyncGenerator[Seen, None]:
        """Yield what was missed and what comes (see `_changes`), and the pieces behind `piece`, a cursor."""

        def stops() -> bool:
            return events.place == str(fold.cursor) and _stops(fold, key)

        async with (
            aclosing(self._changes(run, fold, key)) as coming,
            aclosing(_behind(missed, coming)) as changes,
            aclosing(pieces_of(run, piece)) as pieces,
            aclosing(merged(changes, pieces, events, fold, stops)) as stream,
        ):
            async for event in stream:
                yield event

    async def _changes(self, run: Run, fold: TaskFold, key: str | None) -> AsyncGenerator[Change, None]:
        """Yield changes until the task has ended, or waits; not before the journal has the answer `key`."""
        if self._streams >= MOST_STREAMS:
            raise UnsupportedOperationError(f"{MOST_STREAMS} requests follow tasks already: try again later.")
        self._streams += 1
        try:
            async with aclosing(self._tasks.follow(run, fold)) as changes:
                async for change in changes:
                    yield change
                    if _stops(fold, key):
                        return
        finally:
            self._streams -= 1


async def _behind(
    missed: Sequence[Change], coming: AsyncGenerator[Change, None]
) -> AsyncGenerator[Change, None]:
    for change in missed:
        yield change
    async for change in coming:
        yield change


def _stops(fold: TaskFold, key: str | None) -> bool:
    """Whether a stream ends here; not before the journal has the answer or signal with this key."""
    return fold.ended or (pauses(fold) and (key is None or key in fold.answers))


def _requester(context: ServerCallContext) -> str:
    return context.user.user_name


def _header(context: ServerCallContext, name: str) -> str | None:
    headers: dict[str, str] = context.state.get("headers", {})
    return headers.get(name)


_INVALID: Final = (
    EventValidationError,
    InputDiffersError,
    RecordTooLargeError,
    StateError,
    ConfigError,
    CapabilityError,
)


@contextmanager
def _translated() -> Iterator[None]:
    """Make A2A errors of this package's; others are said here and not to the client."""
    try:
        yield
    except A2AError:
        raise
    except _INVALID as error:
        raise InvalidParamsError(brief(error, _MOST_MESSAGE)) from None
    except RunNotFoundError:
        raise TaskNotFoundError("There is no such task.") from None
    except RunEndedError as error:
        raise UnsupportedOperationError(brief(error, _MOST_MESSAGE)) from None
    except RunError as error:
        raise InvalidParamsError(brief(error, _MOST_MESSAGE)) from None
    except EventStoreError as error:
        _LOGGER.error("%s", error)
        raise InternalError("The event log does not answer as it should: try again later.") from None
    except NoesiumError as error:
        _LOGGER.error("%s", error)
        raise InternalError("The request could not be served.") from None
    except Exception as error:
        _LOGGER.exception("unexpected %s", type(error).__name__)
        raise InternalError("The request could not be served.") from None
