"""The SDK's server with the methods of this one: tools and tasks, on the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final

from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
    RequestParams,
)
from pydantic import Field, ValidationError

from noesium_stream.errors import (
    ApprovalError,
    CapabilityError,
    ConfigError,
    EventStoreError,
    EventValidationError,
    InputDiffersError,
    NoesiumError,
    RecordTooLargeError,
    RunError,
    RunNotFoundError,
    StateError,
    brief,
)
from noesium_stream.mcp_server.calls import Calls, Tasks
from noesium_stream.mcp_server.catalogue import Catalogue
from noesium_stream.mcp_server.requests import TASKS, Asker, Context, asker_of, check_header, require_tasks

NAME: Final = "noesium"
TTL_MS: Final = 60_000
"""How long a client may keep a page of tools, in milliseconds."""
STATE_S: Final = 30 * 24 * 3600.0
"""How long a client may take to answer a question that came with `requestState`, in seconds."""
MOST_LISTENERS: Final = 256
"""Streams of `subscriptions/listen` at once."""
_MOST_MESSAGE: Final = 1_000
_LOGGER: Final = logging.getLogger(__name__)


class TaskParams(RequestParams):
    """Parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str = Field(max_length=256)


class TaskUpdateParams(TaskParams):
    """Parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(default_factory=dict, max_length=1_000)


class Handlers:
    """Answers MCP requests from the log.

    Args:
        tasks: the runs on the log.
        catalogue: what may be called.
        calls: takes calls of tools.
        anybody: name of the requester where the transport tells none.
    """

    def __init__(self, tasks: Tasks, catalogue: Catalogue, calls: Calls, anybody: str) -> None:
        self._tasks = tasks
        self._catalogue = catalogue
        self._calls = calls
        self._anybody = anybody

    def server(self, state_key: bytes, bus: InMemorySubscriptionBus) -> Server[Any]:
        """Make the SDK's server.

        Args:
            state_key: seals `requestState`.
            bus: tells of changes of the tools.
        """
        server = Server[Any](
            NAME,
            version=version("noesium-stream"),
            instructions="Each tool is a capability of an agent; a call of it is a durable run.",
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_subscriptions_listen=ListenHandler(bus, max_subscriptions=MOST_LISTENERS),
            get_tool_input_schema=self._catalogue.schema,
        )
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self.get_task)
        server.add_request_handler("tasks/update", TaskUpdateParams, self.update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self.cancel_task)
        security = RequestStateSecurity(
            keys=[state_key], ttl=STATE_S, bind_principal=lambda context: self._asker(context).name
        )
        server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
        return server

    async def list_tools(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        """Answer `tools/list`."""
        with _translated():
            asker = self._asker(context)
            cursor = None if params is None else params.cursor
            page = await self._catalogue.page(asker.name, cursor, modern=asker.modern)
            return ListToolsResult(
                tools=page.tools, next_cursor=page.next_cursor, ttl_ms=TTL_MS, cache_scope="private"
            )

    async def call_tool(self, context: Context, params: CallToolRequestParams) -> Any:
        """Answer `tools/call`."""
        with _translated():
            return await self._calls.call(context, params, self._asker(context))

    async def get_task(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Answer `tasks/get`."""
        with _translated():
            asker = self._task_asker(context, params)
            _, fold = await self._tasks.find(params.task_id, asker.name)
            return fold.details(asks=asker.asks)

    async def update_task(self, context: Context, params: TaskUpdateParams) -> dict[str, Any]:
        """Answer `tasks/update`: take the answers to what a task asks."""
        with _translated():
            asker = self._task_asker(context, params)
            run, fold = await self._tasks.find(params.task_id, asker.name)
            await self._calls.respond(run, fold, params.input_responses, asker)
            return {}

    async def cancel_task(self, context: Context, params: TaskParams) -> dict[str, Any]:
        """Answer `tasks/cancel`: ask the run, and all that it has called, to end."""
        with _translated():
            asker = self._task_asker(context, params)
            run, fold = await self._tasks.find(params.task_id, asker.name)
            if not fold.ended and await run.cancel_request() is None:
                await run.cancel(f"cancelled over MCP by {asker.name}")
            return {}

    def _asker(self, context: Context) -> Asker:
        return asker_of(context, self._anybody)

    def _task_asker(self, context: Context, params: TaskParams) -> Asker:
        asker = self._asker(context)
        require_tasks(asker, context.method)
        check_header(context, params.task_id)
        return asker


_INVALID: Final = (
    ApprovalError,
    CapabilityError,
    ConfigError,
    EventValidationError,
    InputDiffersError,
    RecordTooLargeError,
    StateError,
)


@contextmanager
def _translated() -> Iterator[None]:
    """Make MCP errors of this package's; others are said here and not to the client."""
    try:
        yield
    except (MCPError, ValidationError):
        raise
    except RunNotFoundError:
        raise MCPError(INVALID_PARAMS, "There is no such task.") from None
    except (*_INVALID, RunError) as error:
        raise MCPError(INVALID_PARAMS, brief(error, _MOST_MESSAGE)) from None
    except EventStoreError as error:
        _LOGGER.error("%s", error)
        raise MCPError(
            INTERNAL_ERROR, "The event log does not answer as it should: try again later."
        ) from None
    except NoesiumError as error:
        _LOGGER.error("%s", error)
        raise MCPError(INTERNAL_ERROR, "The request could not be served.") from None
    except Exception as error:
        _LOGGER.exception("unexpected %s", type(error).__name__)
        raise MCPError(INTERNAL_ERROR, "The request could not be served.") from None
