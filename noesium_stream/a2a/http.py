"""The HTTP client of calls: it goes where the settings allow, and takes a bounded answer."""

from __future__ import annotations

import asyncio
import ssl
import tomllib
from collections.abc import AsyncIterator, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import httpx

from noesium_stream.a2a.hosts import check_allowed
from noesium_stream.config import NoesiumConfig
from noesium_stream.errors import CapabilityError, ConfigError
from noesium_stream.event.trust.small_files import read_small

MAX_RESPONSE_BYTES: Final = 4_000_000
MAX_FILE_BYTES: Final = 1_000_000
RESPONSE_S: Final = 60.0
"""How long a peer may be silent within one answer, in seconds."""
SETTINGS_ERRORS: Final = (ConfigError,)


class ResponseTooLargeError(CapabilityError):
    """A peer's answer has more than `MAX_RESPONSE_BYTES`, or is compressed."""


async def http_client(config: NoesiumConfig) -> httpx.AsyncClient:
    """Make the client of one call.

    Raises:
        ConfigError: the file of tokens cannot be read.
    """
    path = config.a2a_tokens
    tokens = {} if path is None else await asyncio.to_thread(read_peer_tokens, path)
    return httpx.AsyncClient(
        transport=_Bounded(config.a2a_allow, tokens),
        headers={"Accept-Encoding": "identity"},
        timeout=httpx.Timeout(RESPONSE_S),
        follow_redirects=False,
        trust_env=False,
    )


def read_peer_tokens(path: Path) -> Mapping[str, str]:
    """Read the bearer tokens for peers, by host.

    Raises:
        ConfigError: the file cannot be read, or has something else.
    """
    data = read_small(
        path, MAX_FILE_BYTES, "file of tokens for peers", "NOESIUM_A2A_TOKENS, or a2a_tokens in noesium.toml,"
    )
    hint = 'Write [tokens], and lines such as "agents.example.com" = "TOKEN".'
    try:
        table = tomllib.loads(data.decode()).get("tokens")
    except (ValueError, RecursionError):
        # The error could quote a token.
        raise ConfigError(f"The tokens {path} are no TOML.", hint=hint) from None
    if not isinstance(table, dict) or not all(_is_token(token) for token in table.values()):
        raise ConfigError(
            f"The tokens {path} have no table [tokens] with a token for each host.",
            hint=hint,
        )
    return {host.lower(): token for host, token in table.items()}


def _is_token(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value


@cache
def _tls() -> ssl.SSLContext:
    """Return the context of all calls: to make one reads all certificates."""
    return httpx.create_ssl_context()


class _Bounded(httpx.AsyncBaseTransport):
    """Checks each request's host, gives it the token of that host, and bounds the answer."""

    def __init__(self, allowed: Collection[str], tokens: Mapping[str, str]) -> None:
        self._allowed = allowed
        self._tokens = tokens
        self._inner = httpx.AsyncHTTPTransport(verify=_tls())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """See `httpx.AsyncBaseTransport`."""
        host = check_allowed(str(request.url), self._allowed)
        if host in self._tokens:
            request.headers["Authorization"] = f"Bearer {self._tokens[host]}"
        response = await self._inner.handle_async_request(request)
        stream = response.stream
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise ResponseTooLargeError(f"{host} answers compressed, which was not asked for.")
        assert isinstance(stream, httpx.AsyncByteStream), "the transport is async"
        response.stream = _BoundedStream(stream, host)
        return response

    async def aclose(self) -> None:
        """See `httpx.AsyncBaseTransport`."""
        await self._inner.aclose()


class _BoundedStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, host: str) -> None:
        self._inner = inner
        self._host = host

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > MAX_RESPONSE_BYTES:
                raise ResponseTooLargeError(
                    f"{self._host} answers with more than {MAX_RESPONSE_BYTES:,} bytes."
                )
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
