"""The server, by HTTP (streamable, stateless) or standard input, in the event loop of its process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from mcp.server.lowlevel import Server as SdkServer
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ToolsListChanged
from mcp.server.transport_security import TransportSecuritySettings

from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client import Client
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import EventStoreError
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.port import EventLog
from noesium_stream.mcp_server.calls import Calls
from noesium_stream.mcp_server.catalogue import Catalogue
from noesium_stream.mcp_server.handlers import Handlers
from noesium_stream.mcp_server.task import TaskFold
from noesium_stream.serving.gate import MAX_BODY_BYTES, Gate
from noesium_stream.serving.listener import Address, Listener
from noesium_stream.serving.offers import Offers
from noesium_stream.serving.runs import Runs

ANYBODY: Final = "mcp"
"""The name of the requester where the transport tells none."""
PATH: Final = "/mcp"
WAIT_S: Final = 300.0
"""How long a call waits for its run, in seconds, unless the server is told another time."""
TASK_S: Final = 0.5
"""How long the call of a client that knows tasks waits before it becomes one, in seconds."""
_AGAIN_S: Final = 5.0


class Waits(NamedTuple):
    """How long calls wait, in seconds: for their run, and before they become tasks."""

    run_s: float = WAIT_S
    task_s: float = TASK_S


class McpServer:
    """An MCP server on a log, as an async context manager, for one transport.

    Args:
        log: the log.
        only: the agent types that are open to others; empty: all.
        state_key: seals what clients hand back; all servers of one log need the same.
        policy: of the log: who may register and start what; None: everybody.
        waits: how long calls wait.
        anybody: name of the requester where the transport tells none.
        index: folder of the index of runs, if there is one.
        clock: source of time and ids.
    """

    def __init__(
        self,
        log: EventLog,
        only: Sequence[str] = (),
        *,
        state_key: bytes,
        policy: Policy | None = None,
        waits: Waits | None = None,
        anybody: str = ANYBODY,
        index: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._index = index
        self._clock = clock or SystemClock()
        self._anybody = anybody
        self._clients: dict[str, Client] = {}
        self._registry = CapabilityRegistry(log, clock=self._clock, policy=policy)
        offers = Offers(self._registry, only)
        self._catalogue = Catalogue(offers, policy)
        tasks = Runs[TaskFold, str](log, offers.only, self._client, self._clock, TaskFold)
        times = waits or Waits()
        self._calls = Calls(
            tasks, self._catalogue, self._client, self._clock, wait_s=times.run_s, task_s=times.task_s
        )
        self._bus = InMemorySubscriptionBus()
        handlers = Handlers(tasks, self._catalogue, self._calls, anybody)
        self._server: SdkServer[Any] = handlers.server(state_key, self._bus)

    async def stdio(self) -> None:
        """Serve standard input and output until the input ends.

        Raises:
            LogUnavailableError: the log does not answer at the start.
        """
        async with self._watched(), stdio_server() as (incoming, outgoing):
            await self._server.run(incoming, outgoing, self._server.create_initialization_options())

    @asynccontextmanager
    async def http(
        self, address: Address, *, tokens: Mapping[str, str] | None = None, insecure: bool = False
    ) -> AsyncIterator[Listener]:
        """Serve HTTP at an address, as long as the context is open.

        Args:
            address: where.
            tokens: names by the hashes of their bearer tokens; None: everybody may ask.
            insecure: whether it may listen beside the loopback without tokens.

        Raises:
            ConfigError: nobody can listen there, or everybody could ask there.
            LogUnavailableError: the log does not answer at the start.
        """
        async with AsyncExitStack() as stack:
            listener = Listener(address, tokens, insecure=insecure, path=PATH)
            stack.push_async_callback(listener.stop)
            await stack.enter_async_context(self._watched())
            app = self._server.streamable_http_app(
                streamable_http_path=PATH,
                stateless_http=True,
                max_request_body_size=MAX_BODY_BYTES,
                transport_security=_security(listener),
            )
            await stack.enter_async_context(self._server.session_manager.run())
            listener.start(Gate(app, tokens, listener.hosts, (), self._anybody))
            try:
                yield listener
            finally:
                self._calls.closing = True

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Tell clients of changes of the tools."""
        known = await self._catalogue.digest()  # an error of the log is one of the start
        watching = asyncio.create_task(self._watch(known), name="mcp tools")
        try:
            yield
        finally:
            await self._calls.close()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, known: bytes) -> None:
        while True:
            try:
                await self._registry.changed(after=self._registry.offset)
                now = await self._catalogue.digest()
            except EventStoreError:
                await asyncio.sleep(_AGAIN_S)
                continue
            if now != known:
                known = now
                await self._bus.publish(ToolsListChanged())

    def _client(self, requester: str) -> Client:
        found = self._clients.get(requester)
        if found is None:
            found = Client(self._log, agent_id=requester, clock=self._clock, index=self._index)
            self._clients[requester] = found
        return found


def _security(listener: Listener) -> TransportSecuritySettings:
    """Which hosts and origins requests may name; the gate has judged the host before."""
    if listener.hosts is None:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    hosts = sorted(listener.hosts)
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[form for host in hosts for form in (host, f"{host}:*")],
        allowed_origins=[
            form
            for host in hosts
            for scheme in ("http", "https")
            for form in (f"{scheme}://{host}", f"{scheme}://{host}:*")
        ],
    )
