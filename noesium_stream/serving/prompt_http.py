"""HTTP/1.1 connections that have to begin their requests in time and in little space.

uvicorn bounds how many connections there are, and the gate how long a body may take. What is before both, the
head of a request, is bounded here: who sends none, or sends it byte by byte, would hold a connection for
ever.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S: Final = 10.0
"""Time for the head of a request to arrive, in seconds."""
MAX_HEAD_BYTES: Final = 65_536
"""Size of a head that has not arrived whole; the C parser that uvicorn prefers has no limit."""


class PromptProtocol(H11Protocol):
    """uvicorn's protocol; it closes a connection whose request does not begin within `HEAD_S`."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._judge()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        self._judge()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._forget()
        super().connection_lost(exc)

    def _judge(self) -> None:
        """Wait for a head, if none is here; a request that is answered has one."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._late is None:
            self._late = self.loop.call_later(HEAD_S, self._close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()
