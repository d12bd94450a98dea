"""`tool/net/decode.py`."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator

import httpx
import pytest

from noesium_stream.errors import ToolExecutionError
from noesium_stream.tool.net.decode import read_body


async def test_a_bomb_takes_no_more_memory_than_the_limit() -> None:
    bomb = gzip.compress(bytes(50_000_000))

    async def parts() -> AsyncIterator[bytes]:
        yield bomb

    headers = httpx.Headers({"Content-Encoding": "gzip"})
    tracemalloc.start()
    try:
        with pytest.raises(ToolExecutionError, match="more than"):
            await read_body(parts(), headers, 100_000, "example.com")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
