"""Connections on which nothing comes, or a request byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from starlette.responses import PlainTextResponse

from noesium_stream.serving import prompt_http
from noesium_stream.serving.listener import Address, Listener
from tests.support.reading import PATIENCE_S

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected() -> AsyncIterator[Streams]:
    listener = Listener(Address("127.0.0.1", 0), None, insecure=False, path="/")
    listener.start(PlainTextResponse("here"))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(listener.url).port)
        yield reader, writer
        writer.close()
    finally:
        await listener.stop()


async def rest(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await reader.read()


@pytest.mark.parametrize("sent", [b"", b"GET", HEAD], ids=["nothing", "a word", "no end"])
async def test_a_connection_without_a_whole_head_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_http, "HEAD_S", 0.05)
    async with connected() as (reader, writer):
        writer.write(sent)
        assert await rest(reader) == b""


async def test_a_second_head_has_to_come_in_time_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (reader, writer):
        writer.write(HEAD + b"\r\n")
        await reader.readuntil(b"here")
        monkeypatch.setattr(prompt_http, "HEAD_S", 0.05)
        writer.write(HEAD)
        assert await rest(reader) == b""


async def send_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"X-Filler: " + b"x" * 8_192 + b"\r\n")
        await writer.drain()


async def test_a_head_without_end_ends_the_connection() -> None:
    async with connected() as (_, writer), asyncio.timeout(PATIENCE_S):
        writer.write(HEAD)
        with pytest.raises(ConnectionError):
            await send_for_ever(writer)


async def test_requests_of_one_connection_are_answered_one_after_the_other() -> None:
    async with connected() as (reader, writer):
        for _ in range(3):
            writer.write(HEAD + b"\r\n")
            assert (await reader.readuntil(b"here")).startswith(b"HTTP/1.1 200")
