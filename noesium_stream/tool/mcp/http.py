"""Transport to an MCP server at a URL: the SDK's streamable HTTP, where one failed request ends nothing else.

Without this a request that finds no server would end the whole session, and no caller could tell whether its
own call was sent. So what fails below HTTP is answered here, as JSON-RPC errors: `NOT_SENT` where no request
has left, `LOST` where nobody knows.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import httpx2
import orjson
from mcp.client.streamable_http import streamable_http_client

from noesium_stream.errors import brief
from noesium_stream.tool.mcp.auth import Bearer, ClientCredentials, secret_of
from noesium_stream.tool.mcp.declared import McpServer
from noesium_stream.tool.mcp.oauth import oauth_of
from noesium_stream.tool.mcp.screen import Streams

NOT_SENT: Final = -32_098
"""JSON-RPC error code of this process: no request has reached the server."""
LOST: Final = -32_097
"""JSON-RPC error code of this process: the request may have reached the server, and there is no answer."""
_CONNECT_S: Final = 10.0
_READ_S: Final = 24 * 3_600.0
"""Silence on an open answer: the limit of a call is the tool's own."""


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most so many bytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
        self._inner = inner
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for part in self._inner:
            taken += len(part)
            if taken > self._most:
                raise httpx2.StreamError(f"the answer has more than {self._most:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Careful(httpx2.AsyncBaseTransport):
    """Answers for a server that cannot, and bounds what it sends."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, most: int) -> None:
        self._inner = inner
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            return _error(503, NOT_SENT, f"it cannot be reached: {brief(error)}")
        except httpx2.TransportError as error:
            return _error(502, LOST, f"the connection ended: {brief(error)}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()  # it may unpack to any size
            return _error(502, LOST, "its answer is compressed, which nobody has asked for")
        kind = response.headers.get("content-type", "").lower()
        if response.status_code >= 500 and not kind.startswith("application/json"):
            await response.aclose()
            return _error(502, LOST, f"it answered with status {response.status_code}")
        if not kind.startswith("text/event-stream"):
            response.stream = _Bounded(cast("httpx2.AsyncByteStream", response.stream), self._most)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def http_transport(server: McpServer) -> AsyncIterator[Streams]:
    """The streams of a server of streamable HTTP.

    Raises:
        ConfigError: a secret that it needs is not set.
    """
    assert server.url is not None
    who = f"The MCP server {server.name}"
    client = httpx2.AsyncClient(
        auth=oauth_of(server.auth, server.url, who),
        headers={"Accept-Encoding": "identity", **_headers(server.auth, who)},
        timeout=httpx2.Timeout(_CONNECT_S, read=_READ_S),
        transport=_Careful(httpx2.AsyncHTTPTransport(), server.max_message),
    )
    async with (
        client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=server.max_message
        ) as streams,
    ):
        yield streams


def _headers(auth: ClientCredentials | Bearer | None, who: str) -> dict[str, str]:
    if not isinstance(auth, Bearer):
        return {}
    return {"Authorization": f"Bearer {secret_of(auth.token_env, os.environ, who)}"}


def _error(status: int, code: int, message: str) -> httpx2.Response:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, content=orjson.dumps(body), headers={"content-type": "application/json"})
