"""A screen between transport and session: one bad tool in a list drops itself, not the list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCResponse
from mcp_types.methods import validate_server_result
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

Streams = tuple[Any, Any]
"""What a transport of the SDK yields: a stream to read messages from, and one to write them to."""
MAX_PAGE: Final = 2_000
"""Tools of one page that are looked at."""


class Screen:
    """What one connection has to know of its stream.

    Attributes:
        ended: nothing more comes from the server.
        dropped: what was in lists of tools, and is no tool.
        revision: of the protocol, as negotiated; None: not yet.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.dropped: list[Any] = []
        self.revision: Callable[[], str | None] = lambda: None

    def judge(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Drop from a list of tools what would make the SDK refuse the whole list."""
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
            result = message.result
            listed, revision = result["tools"], self.revision() or LATEST_MODERN_VERSION
            if _valid(revision, {**result, "tools": []}) and not _valid(revision, result):
                kept = [one for one in listed[:MAX_PAGE] if _valid(revision, {**result, "tools": [one]})]
                self.dropped += [one for one in listed[:MAX_PAGE] if one not in kept]
                result["tools"] = kept
        return item


class _Screened:
    def __init__(self, inner: Any, screen: Screen) -> None:
        self._inner = inner
        self._screen = screen

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await self._inner.receive()
            return self._screen.judge(item)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._screen.ended.set()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> _Screened:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> _Screened:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        ended: bool | None = await self._inner.__aexit__(kind, error, traceback)
        return ended


@asynccontextmanager
async def screened(transport: AbstractAsyncContextManager[Streams], screen: Screen) -> AsyncIterator[Streams]:
    """A transport behind a screen."""
    async with transport as (read, write):
        try:
            yield _Screened(read, screen), write
        finally:
            screen.ended.set()


def _valid(revision: str, result: dict[str, Any]) -> bool:
    try:
        validate_server_result("tools/list", revision, result)
    except ValidationError:
        return False
    except (KeyError, ValueError):
        return True
    return True
