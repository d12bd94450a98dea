"""The server: card, endpoints (JSON-RPC and HTTP+JSON) and gate, in the event loop of its process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.types import AgentCard
from a2a.utils.constants import AGENT_CARD_WELL_KNOWN_PATH
from starlette.applications import Starlette
from starlette.types import ASGIApp

from noesium_stream.a2a.card import make_card
from noesium_stream.a2a.handler import LogRequestHandler
from noesium_stream.a2a.journals import Tasks
from noesium_stream.a2a.messages import Messages
from noesium_stream.capabilities.registry import CapabilityRegistry
from noesium_stream.client import Client
from noesium_stream.clock import Clock, SystemClock
from noesium_stream.event.trust.policy import Policy
from noesium_stream.log.port import EventLog
from noesium_stream.serving.gate import Gate
from noesium_stream.serving.listener import Address, Listener
from noesium_stream.serving.offers import Offers

DEFAULT_PORT: Final = 9999
WAIT_S: Final = 300.0
"""How long a request waits for the end of a task, in seconds, unless the server is told another time."""
ANYBODY: Final = "a2a"
"""The name of the requester where no tokens are asked for."""
_RPC_PATH: Final = "/"


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
        self._address = address or Address("127.0.0.1", DEFAULT_PORT)
        self._tokens = tokens
        self._insecure = insecure
        self._sign = sign
        self._wait_s = wait_s
        self._index = index
        self._clock = clock or SystemClock()
        self._offers = Offers(CapabilityRegistry(log, clock=self._clock, policy=policy), only)
        self._clients: dict[str, Client] = {}
        self._listener: Listener | None = None
        self.url = ""

    async def __aenter__(self) -> Server:
        listener = Listener(self._address, self._tokens, insecure=self._insecure, path=_RPC_PATH)
        self.url, self._listener = listener.url, listener
        try:
            await self._offers.all()  # an error of the log is one of the start
        except BaseException:
            await listener.stop()
            raise
        listener.start(self._app(listener.hosts))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._listener is not None:
            await self._listener.stop()

    async def wait(self) -> None:
        """Return when the server has ended; raise its error."""
        if self._listener is not None:
            await self._listener.wait()

    def _app(self, hosts: Collection[str] | None) -> ASGIApp:
        tasks = Tasks(self._log, self._offers.only, self._client, self._clock)
        handler = LogRequestHandler(tasks, Messages(tasks, self._offers, self._client), self._wait_s)
        routes = [
            *create_agent_card_routes(AgentCard(), card_modifier=self._card),
            *create_jsonrpc_routes(handler, _RPC_PATH),
            *create_rest_routes(handler),
        ]
        return Gate(Starlette(routes=routes), self._tokens, hosts, {AGENT_CARD_WELL_KNOWN_PATH}, ANYBODY)

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
