"""A session with an MCP server that lives as long as the worker: it is connected again after each end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import mcp_types as types
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.exceptions import MCPError

from noesium_stream.errors import NoesiumError, ToolServerError, brief
from noesium_stream.escapes import escaped
from noesium_stream.tool.legs import InputRequired
from noesium_stream.tool.mcp.backoff import Backoff
from noesium_stream.tool.mcp.declared import McpServer
from noesium_stream.tool.mcp.http import http_transport
from noesium_stream.tool.mcp.listing import Listing, listing_of
from noesium_stream.tool.mcp.screen import Screen, screened
from noesium_stream.tool.mcp.stdio import StdioTransport
from noesium_stream.tool.mcp.wire import TasksExtension

MAX_PAGES: Final = 64
_WARNINGS: Final = 20
_LOGGER: Final = logging.getLogger(__name__)


class Connection:
    """One life of a session.

    Attributes:
        client: the SDK's client, entered.
        changed: the server's tools may have changed.
    """

    def __init__(self, client: Client, screen: Screen, changed: asyncio.Event) -> None:
        self.client = client
        self.changed = changed
        self._screen = screen

    @property
    def ended(self) -> bool:
        """Whether nothing more comes from the server."""
        return self._screen.ended.is_set()

    def end(self) -> None:
        """Give it up: the next caller gets another one."""
        self._screen.ended.set()

    async def wait_for_end(self) -> None:
        """Return when nothing more comes from the server."""
        await self._screen.ended.wait()


class McpSession:
    """A supervised session.

    Args:
        server: where, and what is declared.
        on_listing: is told the tools, after each list of them.
        backoff: pauses between attempts.

    Attributes:
        list_pause_s: the longest pause between two lists of tools that change without a rest, in seconds.
    """

    list_pause_s: Final = 30.0

    def __init__(
        self, server: McpServer, on_listing: Callable[[Listing], None], backoff: Backoff | None = None
    ) -> None:
        self.server = server
        self.backoff = backoff or Backoff()
        self._who = f"The MCP server {server.name}"
        self._on_listing = on_listing
        self._warned: set[str] = set()
        self._live: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._connections = 0
        self._reason = "it was not reached yet"
        self._stdio: StdioTransport | None = None
        self._failed = asyncio.Event()
        self._stopping = False
        self._running: asyncio.Task[None] | None = None
        self._cause: BaseException | None = None

    async def start(self) -> None:
        """Connect, and list the tools.

        Raises:
            ToolServerError: the first attempt failed.
            ConfigError: a secret is not set.
        """
        self._running = asyncio.create_task(self._run())
        failed = asyncio.create_task(self._failed.wait())
        try:
            ends: set[asyncio.Future[Any]] = {failed, self._live}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failed.cancel()
        if not self._live.done():
            error = self._error
            await self.stop()
            raise error

    async def stop(self) -> None:
        """End the session, and the server if it is a program."""
        self._stopping = True
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        self._live.cancel()

    async def connection(self, timeout_s: float) -> Connection:
        """The live connection, which is waited for.

        Raises:
            ToolServerError: there is none within `timeout_s` seconds.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while (connection := await asyncio.shield(self._live)).ended:
                    self._renew()
                return connection
        except TimeoutError:
            raise ToolServerError(f"{self._who} does not answer: {self._reason}.") from None
        except asyncio.CancelledError:
            if self._live.cancelled():
                raise ToolServerError(f"{self._who} was stopped.") from None
            raise

    @property
    def pid(self) -> int | None:
        """The process of the server's guard; None: it is no program, or does not run."""
        return None if self._stdio is None else self._stdio.pid

    @property
    def _error(self) -> NoesiumError:
        if isinstance(self._cause, NoesiumError):
            return self._cause
        return ToolServerError(f"{self._who} cannot be used: {self._reason}.")

    async def _run(self) -> None:
        while True:
            self._cause = None
            try:
                async with self._connected() as connection:
                    await self._serve(connection)
                self._reason = f"its connection ended.{self._said()}".rstrip(".")
            except Exception as error:
                if self._stopping:  # a connection that fails while it closes hides that it was cancelled
                    return
                self._cause = _first(error)
                self._reason = f"{_why(self._cause)}{self._said()}".rstrip(".")
            if self._connections:
                _LOGGER.warning("%s: %s; it is connected again", self._who, escaped(self._reason))
            self._failed.set()
            await asyncio.sleep(self.backoff.next_s(random.random()))

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        screen, changed = Screen(), asyncio.Event()
        server = self.server
        if server.program is not None:
            transport: Any = StdioTransport(server.program, self._who, server.sandbox)
            self._stdio = transport
        else:
            transport = http_transport(server)

        async def hear(message: object) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                changed.set()

        client = Client(
            screened(transport, screen),
            message_handler=hear,
            elicitation_callback=self._asked,
            extensions=[TasksExtension()],
            client_info=types.Implementation(name="noesium-stream", version="1"),
            cache=None,
        )
        try:
            async with asyncio.timeout(server.connect_timeout_s):
                await client.__aenter__()
        except TimeoutError:
            raise ToolServerError(
                f"{self._who} was not connected within {server.connect_timeout_s:g} s."
            ) from None
        try:
            screen.revision = lambda: client.session.protocol_version
            yield Connection(client, screen, changed)
        finally:
            await client.__aexit__(None, None, None)

    async def _serve(self, connection: Connection) -> None:
        limit_s = self.server.connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await self.refresh(connection)
        except TimeoutError:
            raise ToolServerError(f"{self._who} did not list its tools within {limit_s:g} s.") from None
        self._live.set_result(connection)
        self._connections += 1
        watching = [
            asyncio.create_task(self._refreshing(connection)),
            asyncio.create_task(_subscribed(connection)),
        ]
        try:
            await connection.wait_for_end()
        finally:
            self._renew()
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _refreshing(self, connection: Connection) -> None:
        """List the tools when they have changed: at once, and more seldom while they change all the time."""
        pause = Backoff(longest_s=self.list_pause_s)
        while True:
            try:
                async with asyncio.timeout(2 * self.list_pause_s):
                    await connection.changed.wait()
            except TimeoutError:
                pause.worked()
                continue
            connection.changed.clear()
            try:
                async with asyncio.timeout(self.server.connect_timeout_s):
                    await self.refresh(connection)
            except Exception as error:
                if self._stopping or connection.ended:
                    return
                _LOGGER.warning("%s: its tools cannot be listed: %s", self._who, escaped(_why(_first(error))))
            await asyncio.sleep(pause.next_s(random.random()))

    async def refresh(self, connection: Connection) -> None:
        """List the server's tools, page by page; the SDK remembers which arguments go into headers.

        Raises: what the SDK raises.
        """
        items: list[Any] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await connection.client.list_tools(cursor=cursor)
            items += [tool.model_dump(mode="json", by_alias=True, exclude_unset=True) for tool in page.tools]
            cursor = page.next_cursor
            if not cursor or cursor in seen or len(items) > self.server.max_tools:
                break
            seen.add(cursor)
        dropped = connection._screen.dropped
        listing = listing_of(self.server, [*items, *dropped])
        dropped.clear()
        for warning in listing.warnings[:_WARNINGS]:
            if warning not in self._warned and len(self._warned) < 1_000:
                self._warned.add(warning)
                _LOGGER.warning("%s", escaped(warning))
        self._on_listing(listing)

    async def _asked(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        """Answer a server that asks while its call waits (up to 2025-11-25)."""
        if self.server.answer is None:
            return types.ElicitResult(action="cancel")  # a person may take days
        asked = InputRequired({"it": {"params": params.model_dump(mode="json", by_alias=True)}})
        answer = await self.server.answer(asked.requests["it"]["params"])
        asked.check({"it": answer})
        return types.ElicitResult.model_validate(answer)

    def _renew(self) -> None:
        """Let callers wait for the next connection; those that have the last one see it end."""
        if self._live.done():
            self._live = asyncio.get_running_loop().create_future()

    def _said(self) -> str:
        return "" if self._stdio is None else self._stdio.said()


async def _subscribed(connection: Connection) -> None:
    """Hear of changes of the tools from servers without notifications of their own (2026-07-28)."""
    with suppress(ListenNotSupportedError, MCPError, SubscriptionLost, TimeoutError):
        async with connection.client.listen(tools_list_changed=True) as events:
            async for _ in events:
                connection.changed.set()


def _first(error: BaseException) -> BaseException:
    """The first error of a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _why(error: BaseException) -> str:
    return (error.message if isinstance(error, NoesiumError) else brief(error))[:1_000]
