"""The server: card, endpoints (JSON-RPC and HTTP+JSON) and gate, in the event loop of its process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import uvicorn
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.types import AgentCard
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from starlette.applications import Starlette
from starlette.types import ASGIApp

from noesium_stream.a2a.card import make_card
from noesium_stream.a2a.gate import Gate
from noesium_stream.a2a.handler import LogRequestHandler
from noesium_stream.a2a.hosts import is_loopback
from noesium_stream.a2a.journals import Tasks
from noesium_stream.a2a.messages import Messages
from noesium_stream.a2a.offers import Offers
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client import Client
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.errors import ConfigError
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.port import EventLog

DEFAULT_PORT: Final = 9999
WAIT_S: Final = 300.0
"""How long a request waits for the end of a task, in seconds, unless the server is told another time."""
MOST_CONNECTIONS: Final = 512
"""Connections and requests at once; one more gets the status 503."""
LEAVE_S: Final = 2
"""How long open streams may go on when the server ends, in seconds."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_RPC_PATH: Final = "/"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and how clients reach it.

    Attributes:
        host: to listen at.
        port: to listen at; 0 takes a free one.
        url: by which clients reach it, as the card says it; None: that of host and port.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    url: str | None = None


class Server:
    """An A2A server on a log, as an async context manager; `wait` returns when it has ended.

    Args:
        log: the log.
        only: the agent types that are open to others; empty: all.
        address: where it listens.
        tokens: names by the hashes of their bearer tokens; None: everybody may ask.
        insecure: whether it may listen beside the loopback without tokens.
        policy: by which registrations of capabilities are judged.
        sign: signs the card; None: it is not signed.
        wait_s: how long a request waits for the end of a task, in seconds.
        index: folder of the index of runs, if there is one.
        clock: source of time and ids.

    Raises:
        ConfigError: on entering: nobody can listen there, or everybody could ask there.
    """

    def __init__(
        self,
        log: EventLog,
        only: Sequence[str] = (),
        address: Address | None = None,
        *,
        tokens: Mapping[str, str] | None = None,
        insecure: bool = False,
        policy: Policy | None = None,
        sign: Callable[[AgentCard], AgentCard] | None = None,
        wait_s: float = WAIT_S,
        index: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._log = log
        self._address = address or Address()
        self._tokens = tokens
        self._insecure = insecure
        self._sign = sign
        self._wait_s = wait_s
        self._index = index
        self._clock = clock or SystemClock()
        self._offers = Offers(CapabilityRegistry(log, clock=self._clock, policy=policy), only)
        self._clients: dict[str, Client] = {}
        self._server: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""

    async def __aenter__(self) -> Server:
        self._check()
        listening = self._listen()
        host, port = self._address.host, listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = self._address.url or f"http://{shown}:{port}{_RPC_PATH}"
        await self._offers.all()  # an error of the log is one of the start
        config = uvicorn.Config(
            self._app(shown.lower()),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=LEAVE_S,
            ws="none",
        )
        self._server = _Uvicorn(config)
        self._serving = asyncio.create_task(self._server.serve([listening]), name="a2a server")
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await asyncio.wait([self._serving])

    async def wait(self) -> None:
        """Return when the server has ended; raise its error."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    def _check(self) -> None:
        if self._tokens is None and not self._insecure and not is_loopback(self._address.host):
            raise ConfigError(
                f"Everybody who reaches {self._address.host} could start runs here.",
                hint="Give --tokens FILE with those who may, listen at 127.0.0.1, or say --insecure.",
            )

    def _listen(self) -> socket.socket:
        host, port = self._address.host, self._address.port
        try:
            return socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
            )
        except (OSError, OverflowError, UnicodeError) as error:
            raise ConfigError(
                f"Nobody can listen at {host}:{port}: {str(error).rstrip('.')}.",
                hint="Name another address: --host and --port.",
            ) from error

    def _app(self, host: str) -> ASGIApp:
        tasks = Tasks(self._log, self._offers.only, self._client, self._clock)
        handler = LogRequestHandler(tasks, Messages(tasks, self._offers, self._client), self._wait_s)
        routes = [
            *create_agent_card_routes(AgentCard(), card_modifier=self._card),
            *create_jsonrpc_routes(handler, _RPC_PATH),
            *create_rest_routes(handler),
        ]
        hosts = None
        if self._tokens is None and not self._insecure:
            own = [] if self._address.url is None else [(urlsplit(self._address.url).hostname or "").lower()]
            hosts = {host, *_LOOPBACK, *own}
        return Gate(Starlette(routes=routes), self._tokens, hosts, {AGENT_CARD_WELL_KNOWN_PATH})

    async def _card(self, _: AgentCard) -> AgentCard:
        only = self._offers.only
        name = only[0] if len(only) == 1 else "noesium"
        authenticated = self._tokens is not None
        card = make_card(await self._offers.all(), self.url, name=name, authenticated=authenticated)
        return card if self._sign is None else self._sign(card)

    def _client(self, requester: str) -> Client:
        found = self._clients.get(requester)
        if found is None:
            found = Client(self._log, agent_id=requester, clock=self._clock, index=self._index)
            self._clients[requester] = found
        return found


class _Uvicorn(uvicorn.Server):
    """A server that leaves the signals of its process alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See `uvicorn.Server`."""
        yield


def quiet_libraries() -> None:
    """Silence what the libraries say of each bad request: others could fill the log of this process."""
    for name in ("a2a", "uvicorn.error", "sse_starlette"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
