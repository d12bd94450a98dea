"""The line between workers and brokers, which faults cut, hold and slow."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.chaos.link import Link, Requests
from tests.support.reading import PATIENCE_S, eventually


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    """A line to a server that says everything again."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    link = Link(server.sockets[0].getsockname()[1])
    await link.listen()
    yield link
    await link.close()
    server.close()


async def said(link: Link, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which this was said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
    writer.write(text)
    return reader, writer


async def test_what_is_held_in_either_direction_goes_on_when_it_is_mended(link: Link) -> None:
    for lane in (link.up, link.down):
        lane.held = True
        reader, writer = await said(link, b"hello")
        heard = asyncio.create_task(reader.readexactly(5))
        if lane is link.down:
            await eventually(lambda: link.up.carried == 10)
        done, _ = await asyncio.wait([heard], timeout=0.05)
        assert not done
        assert link.up.carried == (0 if lane is link.up else 10)
        link.mend()
        assert await asyncio.wait_for(heard, PATIENCE_S) == b"hello"
        writer.close()


async def test_a_cut_line_breaks_all_connections_and_takes_none_until_it_is_mended(link: Link) -> None:
    reader, _ = await said(link, b"hello")
    assert await reader.readexactly(5) == b"hello"
    link.cut()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
    reader, _ = await said(link, b"hello")
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(1), PATIENCE_S)
    link.mend()
    reader, writer = await said(link, b"hello")
    assert await asyncio.wait_for(reader.readexactly(5), PATIENCE_S) == b"hello"
    writer.close()


async def test_a_slow_line_is_as_late_as_it_was_told(link: Link) -> None:
    link.down.delay_s = 0.1
    reader, writer = await said(link, b"hello")
    begun = time.monotonic()
    assert await asyncio.wait_for(reader.readexactly(5), PATIENCE_S) == b"hello"
    assert time.monotonic() - begun >= 0.09
    writer.close()


def requests(*keys: int) -> bytes:
    """Requests of these API keys, of several lengths."""
    return b"".join(struct.pack(">ih", 2 + 7 * n, key) + b"\0" * 7 * n for n, key in enumerate(keys))


def in_pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("size", [1, 2, 5, 6, 7, 100])
def test_requests_are_found_however_their_bytes_come(size: int) -> None:
    found = Requests()
    data = requests(26, 0, 3, 24, 26)
    assert [key for piece in in_pieces(data, size) for key in found.feed(piece)] == [26, 0, 3, 24, 26]


async def test_a_strike_comes_with_the_request_that_it_waits_for_and_before_it_goes_on(link: Link) -> None:
    carried: list[int] = []
    link.strike_at(26, lambda: carried.append(link.up.carried))
    first, second = requests(3), requests(26, 26)
    reader, writer = await said(link, first)
    await asyncio.wait_for(reader.readexactly(len(first)), PATIENCE_S)
    writer.write(second)
    await asyncio.wait_for(reader.readexactly(len(second)), PATIENCE_S)
    assert carried == [len(first)]
    writer.close()
