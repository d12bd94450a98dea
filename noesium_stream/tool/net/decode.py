"""Body of a response: bounded as it comes and as it unpacks, whatever its headers say."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterable
from typing import Final

import httpx

from noesium_stream.errors import ToolExecutionError

ACCEPTED: Final = "gzip"
"""The only coding that is asked for: its size can be bounded while it unpacks, by the standard library."""
_PLAIN: Final = ("", "identity")
_GZIP: Final = ("gzip", "x-gzip")


async def read_body(parts: AsyncIterable[bytes], headers: httpx.Headers, limit: int, host: str) -> bytes:
    """Read and unpack a body.

    Args:
        parts: the raw bytes as they come.
        headers: of the response.
        limit: bytes, before and after unpacking.
        host: for messages.

    Raises:
        ToolExecutionError: it is larger, its coding was not asked for, or it is damaged.
    """
    coding = headers.get("content-encoding", "").strip().lower()
    if coding not in (*_PLAIN, *_GZIP):
        raise ToolExecutionError(f"{host} answers in an encoding that was not asked for.")
    announced = headers.get("content-length", "")
    if announced.isdecimal() and (len(announced) > 18 or int(announced) > limit):
        raise _too_large(host, limit)
    unpack = _Gzip(limit, host) if coding in _GZIP else None
    received, body = 0, bytearray()
    async for part in parts:
        received += len(part)
        body += part if unpack is None else unpack.feed(part)
        if received > limit or len(body) > limit:
            raise _too_large(host, limit)
    if unpack is not None and received:
        unpack.end()
    return bytes(body)


class _Gzip:
    def __init__(self, limit: int, host: str) -> None:
        self._inflate = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._left = limit
        self._host = host

    def feed(self, part: bytes) -> bytes:
        try:
            plain = self._inflate.decompress(part, self._left + 1)
        except zlib.error:
            raise ToolExecutionError(f"{self._host} answers with damaged gzip data.") from None
        if self._inflate.unused_data:
            raise ToolExecutionError(f"{self._host} answers with data behind the end of its gzip data.")
        self._left -= len(plain)
        return plain

    def end(self) -> None:
        if not self._inflate.eof:
            raise ToolExecutionError(f"{self._host} answers with incomplete gzip data.")


def _too_large(host: str, limit: int) -> ToolExecutionError:
    return ToolExecutionError(f"{host} answers with more than {limit:,} bytes.")
