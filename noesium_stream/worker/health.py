"""Health of a worker over HTTP, for supervisors and load balancers.

 - `GET /livez`: 200 while the event loop turns; 503 if it has not turned for `STALLED_S`: only a restart
   helps.
 - `GET /readyz`: 200 while every agent is a member of its group, has taken its assigned partitions (there may
   be none), and the log answers; 503 before that, and while a partition is being taken or the log is
   unavailable: waiting helps.

The body is JSON and gives the reasons. The server has its own thread, so that it answers when the loop does
not.

Anybody may reach the port. So it has a limit of connections, and each connection a limit of time: connections
that say nothing are closed, the oldest first, and a probe gets its answer whatever others do.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Self

from noesium_stream.clock import Clock
from noesium_stream.errors import ConfigError

STALLED_S: Final = 30.0
TICK_S: Final = 0.5
MAX_CONNECTIONS: Final = 32
"""Connections that are open at once; one more closes the oldest."""
CONNECTION_S: Final = 5.0
"""Time for a whole request and its answer, in seconds."""


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a worker.

    Attributes:
        waits_for: reasons why it is not ready, one line each; empty: it is ready.
        partitions: the partitions that it works on, by agent type.
    """

    waits_for: Sequence[str] = ()
    partitions: Mapping[str, Sequence[int]] = field(default_factory=dict)


class HealthServer:
    """HTTP server for a worker's health, as an async context manager.

    Args:
        address: `(host, port)` to listen at; port 0 takes a free one.
        look: returns the worker's health; called in the event loop.
        clock: clock that measures stalls.
        stalled_s: how long the event loop may stand still before the process counts as dead, in seconds.

    Raises:
        ConfigError: on entering: the address cannot be listened at.
    """

    def __init__(
        self,
        address: tuple[str, int],
        look: Callable[[], Health],
        clock: Clock,
        *,
        stalled_s: float = STALLED_S,
    ) -> None:
        self._address = address
        self._look = look
        self._clock = clock
        self._stalled_s = stalled_s
        self._seen = Health(["the worker is starting"])
        self._ticked = clock.monotonic()
        self._ticks: asyncio.Task[None] | None = None
        self._server: _BoundedServer | None = None
        self._thread: Thread | None = None

    @property
    def url(self) -> str:
        """URL that the server listens at."""
        host, port = self._server.server_address[:2] if self._server is not None else self._address
        return f"http://{host if isinstance(host, str) else host.decode()}:{port}"

    async def __aenter__(self) -> Self:
        try:
            self._server = _BoundedServer(self._address, self._handler(), self._clock)
        except (OSError, OverflowError, TypeError, UnicodeError) as error:  # not a host name
            host, port = self._address
            raise ConfigError(
                f"Nobody can listen at {host}:{port}: {str(error).rstrip('.')}.",
                hint="Name another one: --health [HOST:]PORT.",
            ) from error
        self._thread = Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()
        self._ticks = asyncio.create_task(self._tick(), name="health")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ticks is not None:
            self._ticks.cancel()
            await asyncio.gather(self._ticks, return_exceptions=True)
        if self._server is not None and self._thread is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._thread.join()
            self._server.server_close()

    async def _tick(self) -> None:
        while True:
            self.look_now()
            await asyncio.sleep(TICK_S)

    def look_now(self) -> None:
        """Update the health; call it in the event loop."""
        self._seen, self._ticked = self._look(), self._clock.monotonic()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body for a path; called by the server's threads."""
        seen, age = self._seen, self._clock.monotonic() - self._ticked
        stalled = [f"the event loop has not turned for {age:.0f} s"] if age > self._stalled_s else []
        if path == "/livez":
            return (503 if stalled else 200), {"live": not stalled, "why": stalled}
        if path == "/readyz":
            why = [*stalled, *seen.waits_for]
            return (503 if why else 200), {"ready": not why, "why": why, "partitions": dict(seen.partitions)}
        return 404, {"why": ["there are /livez and /readyz"]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            server_version = "noesium"

            def do_GET(self) -> None:
                status, body = answer(self.path.partition("?")[0])
                text = json.dumps(body).encode() + b"\n"
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing: health is polled often."""

        return Handler


class _BoundedServer(ThreadingHTTPServer):
    """An HTTP server with a thread for each connection, and limits on both."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._open: dict[socket.socket, float] = {}  # oldest first
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Close the oldest connections if there are too many, and answer this one."""
        with self._lock:
            self._open[request] = self._clock.monotonic()
            for oldest in list(self._open)[:-MAX_CONNECTIONS]:
                self._end(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections whose time is up; the server's thread calls this twice a second."""
        with self._lock:
            began = self._clock.monotonic() - CONNECTION_S
            for request in [request for request, at_s in self._open.items() if at_s <= began]:
                self._end(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; its thread calls this."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about connections that break; report everything else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _end(self, request: socket.socket) -> None:
        """End a connection: its thread reads the end, and closes it. Call it with the lock held."""
        del self._open[request]
        with suppress(OSError):  # the other side was faster
            request.shutdown(socket.SHUT_RDWR)
