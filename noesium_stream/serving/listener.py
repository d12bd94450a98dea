"""An HTTP server in the event loop of its process: where it listens, who reaches it, and its end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp

from noesium_stream.errors import ConfigError
from noesium_stream.serving.loopback import is_loopback
from noesium_stream.serving.prompt_http import MAX_HEAD_BYTES, PromptProtocol

MOST_CONNECTIONS: Final = 512
"""Connections and requests at once; one more gets the status 503."""
LEAVE_S: Final = 2
"""How long open streams may go on when the server ends, in seconds."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and how clients reach it.

    Attributes:
        host: to listen at.
        port: to listen at; 0 takes a free one.
        url: by which clients reach it; None: that of host and port.
    """

    host: str
    port: int
    url: str | None = None


class Listener:
    """Serves an ASGI application at an address.

    Args:
        address: where it listens.
        tokens: names by the hashes of their bearer tokens; None: everybody may ask.
        insecure: whether it may listen beside the loopback without tokens.
        path: of the application, in `url`.

    Attributes:
        url: by which clients reach the server.
        hosts: names by which requests may address it, lower case, without a port; None: any.

    Raises:
        ConfigError: nobody can listen there, or everybody could ask there.
    """

    def __init__(
        self, address: Address, tokens: Mapping[str, str] | None, *, insecure: bool, path: str
    ) -> None:
        if tokens is None and not insecure and not is_loopback(address.host):
            raise ConfigError(
                f"Everybody who reaches {address.host} could start runs here.",
                hint="Give --tokens FILE with those who may, listen at 127.0.0.1, or say --insecure.",
            )
        self._socket = _listen(address)
        shown = f"[{address.host}]" if ":" in address.host else address.host
        self.url = address.url or f"http://{shown}:{self._socket.getsockname()[1]}{path}"
        self.hosts: frozenset[str] | None = None
        if tokens is None and not insecure:
            own = [] if address.url is None else [(urlsplit(address.url).hostname or "").lower()]
            self.hosts = frozenset({shown.lower(), *_LOOPBACK, *own})
        self._server: _Uvicorn | None = None
        self._serving: asyncio.Task[None] | None = None

    def start(self, app: ASGIApp) -> None:
        """Begin to serve; the application has no lifespan."""
        config = uvicorn.Config(
            app,
            http=PromptProtocol,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=LEAVE_S,
            ws="none",
        )
        self._server = _Uvicorn(config)
        self._serving = asyncio.create_task(self._server.serve([self._socket]), name="http server")

    async def wait(self) -> None:
        """Return when the server has ended; raise its error."""
        if self._serving is not None:
            await asyncio.shield(self._serving)

    async def stop(self) -> None:
        """End the server, and its open streams after `LEAVE_S`."""
        if self._server is None or self._serving is None:
            self._socket.close()
            return
        self._server.should_exit = True
        await asyncio.wait([self._serving])


def _listen(address: Address) -> socket.socket:
    host, port = address.host, address.port
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=128
        )
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(
            f"Nobody can listen at {host}:{port}: {str(error).rstrip('.')}.",
            hint="Name another address: see --help.",
        ) from error


class _Uvicorn(uvicorn.Server):
    """A server that leaves the signals of its process alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See `uvicorn.Server`."""
        yield


def quiet(*libraries: str) -> None:
    """Silence what libraries say of each bad request: others could fill the log of this process."""
    for name in ("uvicorn.error", *libraries):
        logging.getLogger(name).setLevel(logging.CRITICAL)
